# The operator: docker build -f docker/operator.Dockerfile -t rollplex/operator:0.1.0 .
# Another base, such as a mirror's, or one pinned by digest: --build-arg PYTHON_IMAGE=...
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
WORKDIR /build
COPY requirements/cpu.txt requirements/
# the versions that the tests ran with, of the extra `operator` alone
COPY pyproject.toml README.md ./
COPY trainer trainer
COPY operator operator
RUN python -m venv --without-pip /opt/rollplex \
    && python -m pip --python /opt/rollplex/bin/python install --no-cache-dir --no-compile \
        --constraint requirements/cpu.txt '.[operator]'

FROM ${PYTHON_IMAGE}
COPY --from=build /opt/rollplex /opt/rollplex
# The root file system is read-only in the cluster: no byte code is written, and no home is needed.
ENV PATH=/opt/rollplex/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["rollplex-operator"]
