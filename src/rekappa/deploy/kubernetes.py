"""An app's drivers on Kubernetes.

Each driver is a Deployment of one pod that is replaced, never doubled: a sink has one writer. Spark runs inside that
pod (`local[N]`) or, with a master of `k8s://…`, in client mode with executors in pods of their own. The app's folder is
part of the image, not a ConfigMap: executors need the same packages anyway, an app may have folders and more than a
megabyte, and what runs is then one thing with one name.
"""

from __future__ import annotations

import re
from typing import Any

import yaml  # type: ignore[import-untyped]

from rekappa.deploy.console import console_objects
from rekappa.deploy.drivers import Driver
from rekappa.deploy.names import require_label
from rekappa.deploy.obstacles import notes, require_deployable
from rekappa.deploy.order import Manifest, Order
from rekappa.deploy.pods import TEMPLATE, Object, Place, driver_pod, executor_pod, labels, name_of, ports
from rekappa.errors import ConfigError
from rekappa.store.address import VARIABLE

_QUANTITY = re.compile(r"[1-9]\d*(Mi|Gi|Ti)\Z")
_IMAGE = re.compile(r"[A-Za-z0-9][\w.\-/:@]*\Z")


def kubernetes(order: Order, place: Place) -> Manifest:
    """One file with all objects; refuses with `ConfigError` what can't be deployed so."""
    require_label(place.namespace, "--namespace")
    if not _IMAGE.match(place.image):
        raise ConfigError(f"Cannot use --image {place.image!r}", hint="For example --image registry.example.org/shop:1")
    if not _QUANTITY.match(place.storage):
        raise ConfigError(f"Cannot use --storage {place.storage!r}", hint="Write it like 20Gi.")
    require_deployable(order, "kubernetes")
    text = _heading(order, place) + _written(objects(order, place))
    return Manifest({f"{order.name}.yaml": text}, notes(order, "kubernetes"), order.variables)


def objects(order: Order, place: Place) -> list[Object]:
    """Everything to be applied, in an order in which each finds what it refers to."""
    made = [] if all(driver.local for driver in order.drivers) else _rights(order, place)
    for driver in order.drivers:
        made.append(_claim(order, driver, place))
        if not driver.local:
            made += [_template(order, driver, place), _address(order, driver, place)]
        made.append(_deployment(order, driver, place))
    return [*made, *(console_objects(order, place) if order.console else ())]


def _metadata(order: Order, place: Place, name: str, driver: Driver | None = None) -> Object:
    return {"name": name, "namespace": place.namespace, "labels": labels(order, driver)}


def _rights(order: Order, place: Place) -> list[Object]:
    """What a driver may do: make, watch and remove the pods of its executors and their configuration."""
    metadata = _metadata(order, place, order.name)
    verbs = ["create", "get", "list", "watch", "patch", "delete", "deletecollection"]
    group = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {
            "apiVersion": f"{group}/v1",
            "kind": "Role",
            "metadata": metadata,
            "rules": [{"apiGroups": [""], "resources": ["pods", "configmaps"], "verbs": verbs}],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": order.name},
            "subjects": [{"kind": "ServiceAccount", "name": order.name, "namespace": place.namespace}],
        },
    ]


def _claim(order: Order, driver: Driver, place: Place) -> Object:
    """Room for checkpoints and state. Executors of other machines must see it too."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": _metadata(order, place, name_of(order, driver), driver),
        "spec": {
            "accessModes": ["ReadWriteOnce" if driver.local else "ReadWriteMany"],
            "resources": {"requests": {"storage": place.storage}},
        },
    }


def _template(order: Order, driver: Driver, place: Place) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(order, place, f"{name_of(order, driver)}-executor", driver),
        "data": {TEMPLATE.rpartition("/")[2]: _written([executor_pod(order, driver, place)])},
    }


def _address(order: Order, driver: Driver, place: Place) -> Object:
    """A name for the driver's pod. Executors need it before the driver is ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(order, place, name_of(order, driver), driver),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": labels(order, driver),
            "ports": ports(driver),
        },
    }


def _deployment(order: Order, driver: Driver, place: Place) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(order, place, name_of(order, driver), driver),
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels(order, driver)},
            "template": {"metadata": {"labels": labels(order, driver)}, "spec": driver_pod(order, driver, place)},
        },
    }


def _heading(order: Order, place: Place) -> str:
    wanted = [VARIABLE, *(one.name for one in order.variables if not one.optional)]
    optional = [one.name for one in order.variables if one.optional]
    lines = [
        f"{order.app}: written by `rekappa manifest --for kubernetes`. Before it is applied, make the Secret it names:",
        f"  kubectl -n {place.namespace} create secret generic {order.name}-env --from-env-file=FILE",
        f"with NAME=VALUE in FILE for {', '.join(wanted)}" + (f"; if wanted {', '.join(optional)}" if optional else ""),
        *notes(order, "kubernetes"),
    ]
    return "".join(f"# {line}\n" for line in lines)


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Everything written out, text of several lines as such."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: Any, text: str) -> Any:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _written(documents: list[Object]) -> str:
    written: str = yaml.dump_all(
        documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000, explicit_start=len(documents) > 1
    )
    return written
