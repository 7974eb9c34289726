"""Manifests for the kubectl tests."""

from __future__ import annotations

__all__ = ["CONFIG_MAP", "CRD", "DEPLOYMENT", "POD", "SERVICE", "widget"]

CONFIG_MAP = """
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  labels: {app: web}
data:
  colour: green
  size: "3"
"""

POD = """
apiVersion: v1
kind: Pod
metadata:
  name: web-1
  labels: {app: web, tier: front}
spec:
  containers:
  - name: main
    image: example.com/web:1
    ports:
    - containerPort: 8080
    resources:
      limits: {cpu: 500m, memory: 64Mi}
"""

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels: {app: web}
spec:
  replicas: 2
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      containers:
      - name: main
        image: example.com/web:1
        env:
        - {name: COLOUR, value: green}
      - name: side
        image: example.com/side:1
"""

SERVICE = """
apiVersion: v1
kind: Service
metadata:
  name: web
spec:
  selector: {app: web}
  ports:
  - port: 80
    targetPort: 8080
"""

# With every part that kubectl uses: columns, a status, a scale, defaults, limits.
CRD = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: PLURAL.kubectl.example.com
spec:
  group: kubectl.example.com
  scope: Namespaced
  names:
    plural: PLURAL
    singular: SINGULAR
    kind: KIND
    shortNames: [SHORT]
    categories: [everything]
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale:
        specReplicasPath: .spec.replicas
        statusReplicasPath: .status.replicas
    additionalPrinterColumns:
    - {name: Size, type: string, jsonPath: .spec.size}
    - {name: Replicas, type: integer, jsonPath: .spec.replicas}
    - {name: Secret, type: string, jsonPath: .spec.secret, priority: 1}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        description: Something that is made.
        type: object
        required: [spec]
        properties:
          spec:
            description: What is wanted.
            type: object
            required: [size]
            properties:
              size:
                description: How large it is.
                type: string
                enum: [small, large]
              replicas: {type: integer, minimum: 0, default: 1}
              secret: {type: string}
              parts:
                type: array
                items: {type: string}
          status:
            type: object
            properties:
              replicas: {type: integer}
              phase: {type: string}
"""


def widget(name: str, *, kind: str, size: str = "small", more: str = "") -> str:
    """Return one object of the resource that `CRD` defines."""
    return f"""
apiVersion: kubectl.example.com/v1
kind: {kind}
metadata:
  name: {name}
spec:
  size: {size}
  {more}
"""
