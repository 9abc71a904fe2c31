# One image for all of Zedlog's processes. By itself it runs everything (embedded server, engine, service) over
# /data; docker-compose.yml runs the engine and the service each in a container of its own, over a Redis.
#
# Spark needs a full Java 17 or 21. Debian 12 (bookworm) packages 17, with the incubator vector module that Spark asks
# for; Debian 13, which the plain `python:3.12-slim` has become, packages 21 only. The release is named, so that the two
# cannot come apart, and it is the Debian and the Java on which the tests run. The headless runtime adds some 200 MB.

FROM python:3.12-slim-bookworm AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /app
RUN python -m venv /opt/zedlog
ENV PATH=/opt/zedlog/bin:$PATH
# The packages are a layer of their own: it is built again only when the lock changes. The lock holds the tools for
# development too, and its hashes cover all or nothing; so they are installed and taken out again.
COPY requirements.lock ./
RUN pip install --require-hashes -r requirements.lock \
    && pip uninstall --yes clingo hypothesis ipykernel matplotlib mkdocs-material mypy nbclient owlrl playwright polars pytest pytest-timeout pytest-xdist pyyaml rdflib reasonable ruff schemathesis scipy setuptools sparqlwrapper
COPY pyproject.toml README.md ./
COPY engine engine
COPY service service
COPY zedlog zedlog
RUN pip install --no-deps --editable .

FROM python:3.12-slim-bookworm
# The slim image has no folder for manual pages, and the Java package wants to link some there. The package has no
# version: Debian offers only the newest one of a release, so naming it breaks the build at its next correction.
# hadolint ignore=DL3008
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --system --uid 10001 --create-home zedlog \
    && install --directory --owner zedlog --group zedlog /data /checkpoints /imports /exports /batches /var/cache/zedlog
COPY --from=build /opt/zedlog /opt/zedlog
COPY --from=build --chown=zedlog:zedlog /app /app
WORKDIR /app
# By its number, so that a cluster can see without asking the image that it is not root.
USER 10001
# The kernels are compiled while the image is built. They are bound to the kind of processor: on another one they are
# compiled again at the first start, which is why the cache must be a folder that this user may write.
ENV PATH=/opt/zedlog/bin:$PATH PYTHONUNBUFFERED=1 NUMBA_CACHE_DIR=/var/cache/zedlog
RUN python -m engine.resident.warm

VOLUME /data
EXPOSE 8321
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8321/readyz', timeout=2)"]
# Other machines are not served without a token: `docker run -v zedlog:/data zedlog zedlog token create admin --role admin
# --data-dir /data` makes the first one; `-e ZEDLOG_INSECURE=true` does without.
CMD ["zedlog", "serve", "--host", "0.0.0.0", "--data-dir", "/data"]
