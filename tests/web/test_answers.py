"""What a route answers, whoever serves it."""

from __future__ import annotations

from aioinformer.web.answers import Answer, refusal


def test_a_refusal_is_a_line_of_text() -> None:
    nosniff = {"X-Content-Type-Options": "nosniff"}
    answer = refusal(503, "ends", Retry_After="5")

    assert answer == Answer(503, b"ends\n", headers={**nosniff, "Retry-After": "5"})
    assert answer.content_type.startswith("text/plain")
