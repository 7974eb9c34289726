"""A FastAPI app whose workers share one cache: one copy, one watch, quick restarts.

Run:   pip install fastapi uvicorn 'aioinformer[shared]'
       uvicorn --workers 8 --app-dir examples shared_cache_app:app
       curl localhost:8000/pods/default          (a Kubernetes List, from any worker)
       curl localhost:8000/nodes/node-1/pods     (by an index)
       curl localhost:8000/worker                (who answers, and who writes the cache)
       curl localhost:8000/readyz                (200 while the cache is ready)
The directory is that of CACHE_DIR, or pods-cache in the home directory. Kill the process
that writes: another worker takes over, and nobody lists. Stop everything, and start again:
the pods are there at once.
"""

import os
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import Response

from aioinformer import (
    Client,
    InformerStopped,
    KubeObject,
    NotSynced,
    SharedInformerFactory,
    index_by,
)
from aioinformer.web.asgi import health_routes

CACHE_DIR = os.environ.get("CACHE_DIR") or Path.home() / "pods-cache"

factory = SharedInformerFactory(Client.from_env(), cache_dir=CACHE_DIR)
pods = factory.informer("v1", "pods", indexers={"node": index_by("spec.nodeName")})
app = FastAPI(lifespan=factory.lifespan)
changes = 0


@pods.on_update
async def changed(old: KubeObject, new: KubeObject) -> None:
    global changes  # of this worker: handlers of all workers get each change
    changes += 1


@app.exception_handler(NotSynced)
@app.exception_handler(InformerStopped)
async def unavailable(request: Request, exc: Exception) -> Response:
    return Response(str(exc), status_code=503)


@app.get("/pods/{namespace}")
async def pods_of(namespace: str) -> Response:
    body = pods.lister.namespace(namespace).json()
    return Response(body, media_type="application/json")


@app.get("/nodes/{node}/pods")
async def pods_on(node: str) -> list[str]:
    return sorted(it.key for it in pods.lister.by_index("node", node))


@app.get("/worker")
async def worker() -> dict[str, object]:
    cache = pods.status.cache
    return {
        "pid": os.getpid(),
        "role": cache.role if cache else "memory",
        "writer": cache.writer if cache else 0,
        "changes": changes,
    }


app.mount("/", health_routes(factory))  # last: matches all paths
