# The trainer, on CPUs: docker build -f docker/trainer.Dockerfile -t rollplex/trainer:0.1.0 .
# PyPI has no CPU build of torch: TORCH_INDEX is the index that torch and torchvision are taken from, as in `make setup`.
# Another base, such as a mirror's, or one pinned by digest: --build-arg PYTHON_IMAGE=...
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ARG TORCH_INDEX
WORKDIR /build
COPY requirements requirements
# The steps of requirements/setup.sh. Versions are exact and complete, so nothing is resolved: --no-deps.
RUN python -m venv /opt/rollplex \
    && /opt/rollplex/bin/python -m pip install --no-cache-dir --no-compile --no-deps -r requirements/cpu.txt
RUN /opt/rollplex/bin/python -m pip install --no-cache-dir --no-compile --no-deps \
        ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} -r requirements/cpu-torch.txt
RUN /opt/rollplex/bin/python -m pip install --no-cache-dir --no-compile --no-deps -r requirements/cpu-engines.txt
COPY pyproject.toml README.md ./
COPY trainer trainer
COPY operator operator
RUN /opt/rollplex/bin/python -m pip install --no-cache-dir --no-compile --no-deps --no-build-isolation .

FROM ${PYTHON_IMAGE}
# vLLM's CPU kernels are linked against libnuma
RUN apt-get update \
    && apt-get install -y --no-install-recommends libnuma1 libstdc++6 \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/rollplex /opt/rollplex
# caches and run folders go to a home that the user may write to
RUN install -d -o 65532 -g 65532 /home/rollplex
ENV PATH=/opt/rollplex/bin:$PATH HOME=/home/rollplex PYTHONUNBUFFERED=1
WORKDIR /home/rollplex
USER 65532:65532
ENTRYPOINT ["rollplex"]
