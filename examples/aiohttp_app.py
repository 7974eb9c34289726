"""A web app that answers from an informer's cache: no request reaches the API server.

Run:   python examples/aiohttp_app.py               (the cluster of your kubeconfig)
       curl localhost:8080/pods/default             (a Kubernetes List, as JSON)
       curl 'localhost:8080/pods/default?labelSelector=app%3Dweb'
       curl localhost:8080/healthz                  (200 while the cache can be trusted)
Until the first list is there, /pods answers 503. Ctrl-C ends it.
"""

import argparse
import sys

from aiohttp import web

from aioinformer import AioInformerError, Client, SharedInformerFactory
from aioinformer.errors import InformerStopped, NotSynced, SelectorSyntaxError

OLD_SECONDS = 180.0  # without news; bookmarks, about one a minute, count as news

factory = SharedInformerFactory(Client.from_env())
pods = factory.informer("v1", "pods")
routes = web.RouteTableDef()


@routes.get("/pods/{namespace}")
async def pods_of(request: web.Request) -> web.Response:
    lister = pods.lister.namespace(request.match_info["namespace"])
    try:  # the stored bytes, joined: nothing is decoded
        body = lister.json(request.query.get("labelSelector", ""))
    except SelectorSyntaxError as exc:
        raise web.HTTPBadRequest(text=str(exc)) from exc
    except (NotSynced, InformerStopped) as exc:
        raise web.HTTPServiceUnavailable(text=str(exc)) from exc

    return web.Response(body=body, content_type="application/json")


@routes.get("/healthz")
async def healthz(request: web.Request) -> web.Response:
    status = pods.status
    healthy = status.synced and status.age is not None and status.age < OLD_SECONDS
    report = {"synced": status.synced, "phase": status.phase, "age": status.age}
    return web.json_response(report, status=200 if healthy else 503)


def make_app() -> web.Application:
    app = web.Application()
    app.add_routes(routes)
    app.cleanup_ctx.append(factory.cleanup_ctx)
    return app


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Serve pods from memory.")
    parser.add_argument("--port", type=int, default=8080)
    try:
        web.run_app(make_app(), host="127.0.0.1", port=parser.parse_args().port)
    except AioInformerError as exc:
        sys.exit(str(exc))
