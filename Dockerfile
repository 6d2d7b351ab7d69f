# The program in an image: docker build -t plimsoll . && docker run --rm plimsoll plan --list
#
# With a GPU: docker run --rm --gpus all plimsoll devices (the driver comes from the machine).

FROM golang:1.26-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends g++ zlib1g-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN .ci/image /image

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends libstdc++6 zlib1g && rm -rf /var/lib/apt/lists/* \
	&& useradd --create-home --uid 10001 plimsoll
COPY --from=build /image/ /
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER plimsoll
WORKDIR /home/plimsoll
ENTRYPOINT ["plimsoll"]
