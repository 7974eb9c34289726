"""`python -m aioinformer`: the `aioinformer` command if it is not on the PATH."""

from aioinformer.cli.main import main

if __name__ == "__main__":
    main()
