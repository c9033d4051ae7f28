# mqtool with the extras serve and tls, as a user without privileges; EXTRAS adds others, such as sql, delta, iceberg, rocksdb.
#   docker build -t mqtool .
#   docker run --rm -v /data/rocketmq/store:/store:ro mqtool verify /store
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
ARG EXTRAS=serve,tls
WORKDIR /src
COPY pyproject.toml setup.py MANIFEST.in README.md CHANGELOG.md SECURITY.md LICENSE ./
COPY docs ./docs
COPY mqtool ./mqtool
# Headers, static libraries, tests and Arrow Flight take a third of the space and are not used.
RUN apt-get update -qq && apt-get install -qq --yes --no-install-recommends gcc libc6-dev \
 && python3 -m venv /opt/mqtool \
 && /opt/mqtool/bin/pip install --no-cache-dir --disable-pip-version-check ".[${EXTRAS}]" \
 && /opt/mqtool/bin/pip uninstall --yes pip \
 && find /opt/mqtool -depth -type d '(' -path '*/pyarrow/include' -o -path '*/site-packages/*/tests' ')' -exec rm -r '{}' + \
 && find /opt/mqtool '(' -name '*.a' -o -name '*.pyx' -o -name '*.pxd' -o -path '*/pyarrow/*flight*' ')' -delete

FROM ${BASE}
LABEL org.opencontainers.image.title="mqtool" \
      org.opencontainers.image.description="Look into, check, repair, export and serve the message store of Apache RocketMQ" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/mqtool /opt/mqtool
COPY LICENSE /usr/share/doc/mqtool/LICENSE
# The id that the images of RocketMQ use, so that both can share a volume.
RUN groupadd --gid 3000 mqtool \
 && useradd --uid 3000 --gid 3000 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin mqtool \
 && install --directory --owner 3000 --group 3000 /store
ENV PATH=/opt/mqtool/bin:${PATH} \
    PYTHONUNBUFFERED=1
USER 3000:3000
WORKDIR /tmp
EXPOSE 10911 10909 9876
ENTRYPOINT ["mqtool"]
CMD ["--help"]
