# nodevet in a container, as the user who calls it, with that user's keys and known hosts:
#   docker build -t nodevet .
#   docker run --rm --user "$(id -u):$(id -g)" -e USER -v "$HOME/.ssh:/home/nodevet/.ssh:ro" \
#       -v "$PWD:/work" nodevet check -i fleet.yaml
FROM python:3.12-slim AS wheels
WORKDIR /src
COPY .ci/requirements.txt .ci/requirements.txt
RUN pip wheel --quiet --no-deps --require-hashes --wheel-dir /pinned -r .ci/requirements.txt
COPY . .
RUN pip install --quiet --upgrade --no-index --find-links /pinned setuptools wheel \
 && pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /pinned .

FROM python:3.12-slim
RUN --mount=type=bind,from=wheels,source=/pinned,target=/pinned \
    pip install --quiet --no-cache-dir --no-index --find-links /pinned nodevet \
 && apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends openssh-client \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --uid 10001 nodevet \
 && chmod 755 /home/nodevet
ENV HOME=/home/nodevet
USER nodevet
WORKDIR /work
ENTRYPOINT ["nodevet"]
CMD ["--help"]
