# The book's packages and llama.cpp in a container, by the commands of the Makefile: `docker compose up lab`, or `hub`.
# llama.cpp is compiled for the processor of the machine that builds the image, and without a GPU's backend.

ARG PYTHON=3.13
FROM python:${PYTHON}-slim-trixie AS packages
RUN apt-get update \
    && apt-get install --yes --no-install-recommends make g++ chromium-headless-shell fonts-liberation \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home --shell /bin/bash reader
USER reader
RUN mkdir /home/reader/handbook /home/reader/room

FROM packages AS handbook
WORKDIR /home/reader/handbook
COPY --chown=reader . .
RUN make install GPU=none
CMD ["make", "lab", "GPU=none", "LAB_OPTIONS=--no-browser --ip=0.0.0.0 --port=8888"]
