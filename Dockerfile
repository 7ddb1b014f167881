# regiond in an image of its own: one static program, certificates, no shell.
#
#     docker build -t regiond:dev .
#     make image        with version, commit and date
#
# GOPROXY, GOSUMDB, GONOSUMDB and GOFLAGS can be set with --build-arg. Without a network:
#
#     go mod vendor && docker build --build-arg GOFLAGS=-mod=vendor -t regiond:dev .
#
# It uses only features of the classic builder, so BuildKit is not needed.

ARG GO_VERSION=1.26
FROM golang:${GO_VERSION}-alpine AS build
LABEL org.regiond.stage=build
ARG GOPROXY
ARG GOSUMDB
ARG GONOSUMDB
ARG GOFLAGS
ENV CGO_ENABLED=0
WORKDIR /src

# Modules change less often than sources, so they have a layer of their own. The large
# ones are compiled here too, which makes rebuilding after a change a matter of seconds.
COPY go.mod go.sum ./
RUN case "$GOFLAGS" in *-mod=vendor*) exit 0 ;; esac; \
    go mod download && go build -trimpath -buildvcs=false \
        github.com/nats-io/nats-server/v2/server \
        github.com/redis/go-redis/v9 \
        github.com/hashicorp/memberlist \
        github.com/prometheus/client_golang/prometheus/promhttp

COPY . .
ARG VERSION=dev
ARG COMMIT
ARG DATE
# grpcnotrace makes it 15 MB smaller: see the Makefile.
RUN go build -trimpath -buildvcs=false -tags grpcnotrace -ldflags "-s -w -X main.version=$VERSION -X main.commit=$COMMIT -X main.date=$DATE" \
        -o /out/regiond ./cmd/regiond

FROM scratch
ARG VERSION=dev
ARG COMMIT
ARG DATE
LABEL org.opencontainers.image.title="regiond" \
      org.opencontainers.image.description="A rate limiter for APIs that run in several regions" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/regiond/regiond" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$COMMIT" \
      org.opencontainers.image.created="$DATE"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/regiond /regiond
COPY LICENSE NOTICE THIRD_PARTY.md /
# An id that is unlikely to be a user of the host.
USER 65532:65532
# Data, admin, gossip, and the gateways of an embedded NATS.
EXPOSE 8080 9090 7946/tcp 7946/udp 7947
# Healthy means ready to answer. For another address add --addr, see docker-compose.multi.yml.
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --retries=3 CMD ["/regiond", "healthcheck"]
ENTRYPOINT ["/regiond"]
CMD ["serve"]
