"""A web app that answers from an informer's cache: no request reaches the API server.

Run:   pip install 'aioinformer[metrics]'
       python examples/aiohttp_app.py               (the cluster of your kubeconfig)
       curl localhost:8080/pods/default             (a Kubernetes List, as JSON)
       curl 'localhost:8080/pods/default?labelSelector=app%3Dweb'
       curl -N localhost:8080/events                (a live stream of changes)
       curl localhost:8080/readyz                   (200 while the cache is ready)
       curl localhost:8080/metrics                  (for Prometheus)
/pods returns 503 until the first list is complete. Ctrl-C stops it.
"""

import argparse
import sys

from aiohttp import web

from aioinformer import (
    AioInformerError,
    Client,
    InformerStopped,
    NotSynced,
    SharedInformerFactory,
)
from aioinformer.errors import SelectorSyntaxError
from aioinformer.metrics_prometheus import PrometheusSink
from aioinformer.web.aiohttp import event_stream, health_routes, metrics_routes

MAX_STALENESS = 180.0  # seconds; bookmarks, about one a minute, keep the age low

factory = SharedInformerFactory(Client.from_env(), metrics=PrometheusSink())
pods = factory.informer("v1", "pods")
routes = web.RouteTableDef()


@routes.get("/pods/{namespace}")
async def pods_of(request: web.Request) -> web.Response:
    lister = pods.lister.namespace(request.match_info["namespace"])
    try:  # joins the stored bytes, decodes nothing
        body = lister.json(request.query.get("labelSelector", ""))
    except SelectorSyntaxError as exc:
        raise web.HTTPBadRequest(text=str(exc)) from exc
    except (NotSynced, InformerStopped) as exc:
        raise web.HTTPServiceUnavailable(text=str(exc)) from exc

    return web.Response(body=body, content_type="application/json")


def make_app() -> web.Application:
    app = web.Application()
    app.add_routes(routes)
    app.add_routes(health_routes(factory, max_staleness=MAX_STALENESS))
    app.add_routes(metrics_routes())
    app.add_subapp("/events", event_stream(pods))
    app.cleanup_ctx.append(factory.cleanup_ctx)
    return app


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Serve pods from memory.")
    parser.add_argument("--port", type=int, default=8080)
    try:
        web.run_app(make_app(), host="127.0.0.1", port=parser.parse_args().port)
    except AioInformerError as exc:
        sys.exit(str(exc))
