"""The same with FastAPI: routes that answer from memory, and one that waits.

Run:   pip install fastapi uvicorn
       python examples/fastapi_app.py               (the cluster of your kubeconfig)
       curl localhost:8080/pods/default             (a Kubernetes List, as JSON)
       curl localhost:8080/pods/default/web-0/running      (when it is, or after 30 s)
       curl localhost:8080/readyz                   (200 while the caches answer)
`lifespan_synced(timeout=60)` would wait for the caches before it serves. Ctrl-C ends it.
"""

import argparse

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from aioinformer import Client, KubeObject, SharedInformerFactory
from aioinformer.errors import InformerStopped, NotSynced

factory = SharedInformerFactory(Client.from_env())
pods = factory.informer("v1", "pods")
app = FastAPI(lifespan=factory.lifespan)


@app.exception_handler(NotSynced)
@app.exception_handler(InformerStopped)
async def unavailable(request: Request, exc: Exception) -> JSONResponse:
    return JSONResponse({"detail": str(exc)}, status_code=503)


@app.get("/pods/{namespace}")
async def pods_of(namespace: str) -> Response:
    body = pods.lister.namespace(namespace).json()  # stored bytes: nothing is decoded
    return Response(body, media_type="application/json")


@app.get("/pods/{namespace}/{name}/running")
async def running(namespace: str, name: str) -> JSONResponse:
    def is_running(obj: KubeObject | None) -> bool:
        return obj is not None and obj.at("status.phase") == "Running"

    try:
        await pods.wait_until(is_running, key=f"{namespace}/{name}", timeout=30)
    except TimeoutError as exc:
        return JSONResponse({"detail": str(exc)}, status_code=504)

    return JSONResponse({"running": True})


@app.get("/readyz")
async def readyz() -> JSONResponse:
    troubles = factory.not_ready()  # {} while every cache can be read
    return JSONResponse(troubles, status_code=503 if troubles else 200)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Serve pods from memory.")
    parser.add_argument("--port", type=int, default=8080)
    uvicorn.run(app, host="127.0.0.1", port=parser.parse_args().port)
