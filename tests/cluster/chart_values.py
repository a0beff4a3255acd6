"""Values that turn each feature of the chart on and off."""

from __future__ import annotations

from typing import Any

FULL: dict[str, Any] = {
    "image": {"registry": "mirror.example:5000/team", "digest": "sha256:" + "a" * 64, "pullPolicy": "Always"},
    "imagePullSecrets": ["mirror"],
    "trainer": {"image": {"tag": "1", "pullPolicy": "Never"}, "imagePullSecrets": ["mirror"]},
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"}],
    "extraLabels": {"team": "a"},
    "extraAnnotations": {"example.com/owner": "a"},
    "podLabels": {"pod": "a"},
    "podAnnotations": {"pod": "a"},
    "serviceAccount": {"annotations": {"example.com/role": "a"}},
    "service": {"annotations": {"example.com/scrape": "true"}},
    "nodeSelector": {"pool": "system"},
    "tolerations": [{"key": "system", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "rollplex"}},
                }
            ]
        }
    },
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
    ],
    "priorityClassName": "system-cluster-critical",
    "podSecurity": {"runAsUser": None, "runAsGroup": None, "fsGroup": 7},
    "networkPolicy": {"enabled": True, "metricsFrom": [{"namespaceSelector": {"matchLabels": {"a": "b"}}}]},
    "monitoring": {"operator": {"enabled": True, "labels": {"release": "p"}}, "trainer": {"enabled": True}},
}
FEATURES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "everything": FULL,
    "everything-namespaced": {**FULL, "namespaces": ["team-a", "team-b"]},
    "one-replica": {"replicas": 1},
    "no-budget": {"podDisruptionBudget": {"enabled": False}},
    "no-crd": {"crds": {"install": False}},
    "no-rbac": {"rbac": {"create": False, "aggregatedRoles": False}, "serviceAccount": {"create": False}},
    "no-cluster-objects": {
        "namespaces": ["team-a"],
        "rbac": {"aggregatedRoles": False, "clusterReads": False},
        "crds": {"install": False},
    },
    "no-default-image": {"trainer": {"image": {"repository": ""}}},
    "network-policy": {"networkPolicy": {"enabled": True}},
}
