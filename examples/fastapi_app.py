"""A FastAPI app: a list of pods, a wait for one pod, and a live page.

Run:   pip install fastapi uvicorn 'aioinformer[metrics]'
       uvicorn --app-dir examples fastapi_app:app   (the cluster of your kubeconfig)
       open http://localhost:8000/                  (a page of pods, always up to date)
       curl localhost:8000/pods/default             (a Kubernetes List, as JSON)
       curl localhost:8000/pods/default/web-0/running      (once it runs, or after 30 s)
       curl -N localhost:8000/events                (a live stream of changes)
       curl localhost:8000/readyz                   (200 while the caches are ready)
       curl localhost:8000/metrics                  (for Prometheus)
`lifespan_synced(timeout=60)` would wait for the caches before serving. Ctrl-C stops it.
"""

from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, Response
from starlette.routing import Route

from aioinformer import (
    Client,
    InformerStopped,
    KubeObject,
    NotSynced,
    SharedInformerFactory,
)
from aioinformer.metrics_prometheus import PrometheusSink
from aioinformer.web.asgi import event_stream, health_routes, metrics_routes

factory = SharedInformerFactory(Client.from_env(), metrics=PrometheusSink())
pods = factory.informer("v1", "pods")
app = FastAPI(lifespan=factory.lifespan)


def is_running(pod: KubeObject | None) -> bool:
    return pod is not None and pod.at("status.phase") == "Running"


@app.exception_handler(NotSynced)
@app.exception_handler(InformerStopped)
@app.exception_handler(TimeoutError)
async def unavailable(request: Request, exc: Exception) -> Response:
    return Response(str(exc), status_code=503)


@app.get("/pods/{namespace}/{name}/running")
async def running(namespace: str, name: str) -> Response:
    await pods.wait_until(is_running, key=f"{namespace}/{name}", timeout=30)
    return Response(f"{name} runs")


@app.get("/pods/{namespace}")
async def pods_of(namespace: str) -> Response:
    body = pods.lister.namespace(namespace).json()  # stored bytes, not decoded
    return Response(body, media_type="application/json")


@app.get("/")
async def page() -> FileResponse:
    return FileResponse(Path(__file__).with_suffix(".html"))


app.routes.append(Route("/events", event_stream(pods)))
app.mount("/", health_routes(factory) + metrics_routes())  # last: matches all paths
