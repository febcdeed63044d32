"""Pods: the driver's, and the template of its executors'."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rekappa.config.document import Variable
from rekappa.deploy.drivers import Driver, set_flags
from rekappa.deploy.order import Order
from rekappa.storage.root import VARIABLE as STORAGE
from rekappa.store.address import VARIABLE

HOME = "/var/lib/rekappa"
POD = "REKAPPA_POD"
APP_FOLDER = "/app"
TEMPLATE = "/etc/rekappa/executor.yaml"
PORTS = {"spark.driver.port": "7078", "spark.driver.blockManager.port": "7079"}
Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a cluster: the namespace, the image that holds rekappa and the app, the user and the room for state."""

    image: str
    namespace: str
    user: int
    storage: str


def labels(order: Order, driver: Driver | None = None) -> dict[str, str]:
    return labels_of(order, driver.role if driver else None)


def labels_of(order: Order, role: str | None) -> dict[str, str]:
    made = {"app.kubernetes.io/name": "rekappa", "app.kubernetes.io/instance": order.name}
    return made | ({"app.kubernetes.io/component": role} if role else {})


def name_of(order: Order, driver: Driver) -> str:
    return f"{order.name}-{driver.role}"


def environment(order: Order) -> list[Object]:
    """Every variable by reference to one Secret; none by value. The run store is for drivers alone."""
    return [reference(order, one) for one in order.variables]


def reference(order: Order, variable: Variable) -> Object:
    """A variable by its name in the app's Secret."""
    key: Object = {"name": f"{order.name}-env", "key": variable.name}
    return {
        "name": variable.name,
        "valueFrom": {"secretKeyRef": key | ({"optional": True} if variable.optional else {})},
    }


def spark_settings(order: Order, driver: Driver, place: Place) -> dict[str, str]:
    """What Spark must be told in a pod and the profile does not say."""
    made = {"spark.driver.memory": driver.heap}
    if not driver.local:
        name = name_of(order, driver)
        made |= {
            "spark.driver.host": f"{name}.{place.namespace}.svc",
            "spark.driver.bindAddress": "0.0.0.0",
            **PORTS,
            "spark.kubernetes.namespace": place.namespace,
            "spark.kubernetes.container.image": place.image,
            # Kubernetes fills it in: executors go when this pod goes.
            "spark.kubernetes.driver.pod.name": f"$({POD})",
            "spark.kubernetes.executor.podNamePrefix": name,
            "spark.kubernetes.executor.podTemplateFile": TEMPLATE,
            "spark.kubernetes.executor.podTemplateContainerName": "executor",
            # Spark would look for services and claims of its own to remove, and need the right to remove any.
            "spark.kubernetes.driver.service.deleteOnTermination": "false",
            "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
            "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
        }
    return {key: value for key, value in made.items() if key not in driver.profile.spark}


def driver_pod(order: Order, driver: Driver, place: Place) -> Object:
    """The specification of the driver's pod."""
    name = name_of(order, driver)
    told = _escaped(order.words(driver, order.folder or APP_FOLDER))
    resources: Object = {
        "requests": {"cpu": str(driver.cores), "memory": f"{driver.mebibytes}Mi"},
        "limits": {"memory": f"{driver.mebibytes}Mi"},
    }
    if driver.all_cores:
        # The JVM counts what it may use, not what was asked for.
        resources["limits"]["cpu"] = str(driver.cores)
    container: Object = {
        "name": "driver",
        "image": place.image,
        "command": ["rekappa"],
        "args": [*told, *set_flags(driver, spark_settings(order, driver, place))],
        "env": [
            {"name": "REKAPPA_HOME", "value": f"{HOME}/.rekappa"},
            {"name": "XDG_CACHE_HOME", "value": f"{HOME}/.cache"},
            {"name": POD, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            reference(order, Variable(VARIABLE, False)),
            reference(order, Variable(STORAGE, True)),
            *environment(order),
        ],
        "resources": resources,
        "readinessProbe": {
            "exec": {"command": ["python3", "-m", "rekappa.deploy.ready", order.app, driver.profile_name]},
            "initialDelaySeconds": 20,
            "periodSeconds": 60,
            "timeoutSeconds": 30,
            "failureThreshold": 3,
        },
        "securityContext": closed(),
        "volumeMounts": [{"name": "home", "mountPath": HOME}],
    }
    volumes: list[Object] = [{"name": "home", "persistentVolumeClaim": {"claimName": name}}]
    if not driver.local:
        container["ports"] = [{"name": port["name"], "containerPort": port["port"]} for port in ports(driver)]
        container["volumeMounts"].append({"name": "executor", "mountPath": TEMPLATE.rpartition("/")[0]})
        volumes.append({"name": "executor", "configMap": {"name": f"{name}-executor"}})
    return {
        "serviceAccountName": order.name if not driver.local else "default",
        "automountServiceAccountToken": not driver.local,
        # One number space for all starts of the container: a lease of a process that died is seen to be free at once.
        "shareProcessNamespace": True,
        "terminationGracePeriodSeconds": int(driver.grace.total_seconds()),
        "securityContext": owner(place),
        "containers": [container],
        "volumes": volumes,
    }


def ports(driver: Driver) -> list[Object]:
    """The ports at which executors reach their driver."""
    names = {"spark.driver.port": "driver", "spark.driver.blockManager.port": "blocks"}
    return [{"name": names[key], "port": int(driver.setting(key) or PORTS[key])} for key in PORTS]


def executor_pod(order: Order, driver: Driver, place: Place) -> Object:
    """The template from which Spark makes executors: it adds image, command, memory and cores of the profile."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": labels(order) | {"app.kubernetes.io/component": f"{driver.role}-executor"}},
        "spec": {
            "automountServiceAccountToken": False,
            "securityContext": owner(place),
            "containers": [
                {
                    "name": "executor",
                    "env": environment(order),
                    "securityContext": closed(),
                    "volumeMounts": [{"name": "home", "mountPath": HOME}],
                }
            ],
            "volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": name_of(order, driver)}}],
        },
    }


def owner(place: Place) -> Object:
    """Who a pod's processes and files belong to."""
    return {
        "runAsNonRoot": True,
        "runAsUser": place.user,
        "runAsGroup": place.user,
        "fsGroup": place.user,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def closed() -> Object:
    """A container without rights of its own."""
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def _escaped(words: list[str]) -> list[str]:
    """Kubernetes replaces $(NAME) in a command, and $$ by $: what a person wrote stays as it is."""
    return [word.replace("$", "$$") for word in words]
