"""The console of an app beside its drivers: a service that shares their project, or a pod that shares their run store.

It listens for a proxy that does TLS, and wants a login, as everywhere beyond one's own machine. What it starts are
processes of their own: a unit that is restarted leaves them alone, and one that starts anew revives what the machine
lost when it went down.
"""

from __future__ import annotations

from rekappa.config.document import Variable
from rekappa.deploy.order import Order
from rekappa.deploy.pods import APP_FOLDER, HOME, Object, Place, closed, environment, labels_of, owner, reference
from rekappa.storage.root import VARIABLE as STORAGE
from rekappa.store.address import VARIABLE

PORT = 8787
WORDS = ("console", "--behind-proxy", "--revive", "--port", str(PORT))
WEBHOOK = "REKAPPA_WEBHOOK"
ROLE = "console"


def console_lines(order: Order, folder: str, command: str) -> tuple[list[str], list[str]]:
    """What is the console's own in its unit: how it is called, and how it is stopped and started again."""
    own = [
        f"ExecStart={command}",
        f"Environment=REKAPPA_HOME=/var/lib/rekappa/{order.name} XDG_CACHE_HOME=/var/cache/rekappa",
        f"WorkingDirectory={folder}",
    ]
    ends = [
        "# Jobs that were started from the console go on when it is stopped; --revive finds those that a reboot ended.",
        "KillSignal=SIGTERM",
        "KillMode=process",
        "TimeoutStopSec=30",
    ]
    return own, ends


def console_objects(order: Order, place: Place) -> list[Object]:
    """Room for what it starts, a Deployment of one pod, and a Service for the proxy in front."""
    name, marked = f"{order.name}-{ROLE}", labels_of(order, ROLE)
    metadata: Object = {"name": name, "namespace": place.namespace, "labels": marked}
    claim: Object = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": place.storage}}},
    }
    deployment: Object = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": marked},
            "template": {"metadata": {"labels": marked}, "spec": _pod(order, place, name)},
        },
    }
    service: Object = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"selector": marked, "ports": [{"name": "http", "port": PORT}]},
    }
    return [claim, deployment, service]


def _pod(order: Order, place: Place, name: str) -> Object:
    container: Object = {
        "name": ROLE,
        "image": place.image,
        "command": ["rekappa"],
        "args": [*WORDS, "--host", "0.0.0.0"],
        "workingDir": order.folder or APP_FOLDER,
        "env": [
            {"name": "REKAPPA_HOME", "value": f"{HOME}/.rekappa"},
            {"name": "XDG_CACHE_HOME", "value": f"{HOME}/.cache"},
            reference(order, Variable(VARIABLE, False)),
            reference(order, Variable(STORAGE, True)),
            reference(order, Variable(WEBHOOK, True)),
            *environment(order),
        ],
        "ports": [{"name": "http", "containerPort": PORT}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 10},
        "securityContext": closed(),
        "volumeMounts": [{"name": "home", "mountPath": HOME}],
    }
    return {
        "automountServiceAccountToken": False,
        "shareProcessNamespace": True,
        "securityContext": owner(place),
        "containers": [container],
        "volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": name}}],
    }


def console_notes(order: Order, target: str) -> tuple[str, ...]:
    where = (
        f"sudo -u USER REKAPPA_HOME=/var/lib/rekappa/{order.name} rekappa users add NAME --role operator"
        if target == "systemd"
        else f"kubectl exec -it deploy/{order.name}-console -- rekappa users add NAME --role operator"
    )
    told = [f"the console refuses to start without a login, and wants a proxy with TLS in front: {where}"]
    if target == "kubernetes":
        told.append(
            "what is started from the console runs in its pod, without limits of its own; a pod that is replaced "
            "leaves backfills that can be resumed"
        )
    return tuple(told)
