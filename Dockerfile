# Worker, coordinator and command line in one image: docker build -t REGISTRY/epp-fleet:0.1.0 .
ARG PYTHON=3.11

# The whole image of the same release has the C compiler that the hot path is compiled with.
FROM python:${PYTHON} AS build
WORKDIR /src
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY fleet ./fleet
COPY coordinator ./coordinator
COPY epp_worker ./epp_worker
RUN pip install --no-cache-dir '.[build]' \
    && EPP_FLEET_COMPILE=1 pip wheel --no-build-isolation --no-deps --wheel-dir /wheels .
# Wheels only: a package without one fails here instead of asking for a compiler. The environment
# has no pip of its own; the image's root is read-only later, so everything is compiled now.
RUN python -m venv --without-pip /opt/epp-fleet \
    && pip --python /opt/epp-fleet/bin/python install --no-cache-dir --only-binary :all: \
        /wheels/*.whl \
    && python -m compileall -q /opt/epp-fleet/lib
COPY deploy/entrypoint.sh /opt/epp-fleet/bin/entrypoint

FROM python:${PYTHON}-slim
RUN python -m pip uninstall --yes pip
COPY --from=build /opt/epp-fleet /opt/epp-fleet
ENV PATH=/opt/epp-fleet/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# As a number, so that runAsNonRoot can be checked.
USER 10001:10001
EXPOSE 8080 8081 9002 9003 9004 9090
STOPSIGNAL SIGTERM
ENTRYPOINT ["/opt/epp-fleet/bin/entrypoint"]
CMD ["--help"]
