# burstc with what it compiles and runs programs with. BASE=debian:12: without CUDA.
ARG BASE=nvidia/cuda:12.9.1-devel-ubuntu24.04
FROM ${BASE} AS build
ENV DEBIAN_FRONTEND=noninteractive
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends \
        gcc g++ cmake ninja-build flex bison pkg-config libopenblas-pthread-dev zlib1g-dev libjansson-dev libsodium-dev \
        libopenmpi-dev openmpi-bin libclang-19-dev dpkg-dev pandoc ca-certificates \
    && rm -rf /var/lib/apt/lists/*
COPY . /source
RUN BURST_BUILD=/build /source/scripts/package /

FROM ${BASE}
ENV DEBIAN_FRONTEND=noninteractive
COPY --from=build /burstc_*.deb /
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends /burstc_*.deb openmpi-bin \
    && rm -rf /var/lib/apt/lists/* /burstc_*.deb
WORKDIR /work
ENTRYPOINT ["burstc"]
