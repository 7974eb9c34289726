"""Dashboard: a page that shows what informers and controllers do, and happened to objects.

    app             `Dashboard`: paths, headers, the guard, readers
    sources         the informers and controllers that are shown
    overview, trouble   state of all of them and of the loop, and the problems
    rows            live tables of objects
    states          the states of objects that were seen, and rates of changes
    object_page     one object: its states, and
    object_body, object_events, owner_graph    its body, events and owners
    reconciles      history of reconciles, state of a controller, requeue and forget
    static/         the page: ES modules and CSS, without a build step

It is framework-neutral: `aioinformer.web.aiohttp.dashboard` and
`aioinformer.web.asgi.dashboard` mount it. Nothing is computed while no page is open,
except that the states of changed objects are kept.
"""

from __future__ import annotations

from aioinformer.web.dashboard.app import (
    Dashboard,
    DashboardOptions,
    Guard,
    PageRequest,
)

__all__ = ["Dashboard", "DashboardOptions", "Guard", "PageRequest"]
