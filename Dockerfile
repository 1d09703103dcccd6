# One static binary, and nothing else. `make image` builds the binary first and makes the context:
#   syncnode      the program, built with CGO_ENABLED=0
#   rootfs/data   empty, mode 0700: gives the volume its owner
#   rootfs/tmp    empty, mode 1777: the sockets of runs
FROM scratch
COPY syncnode /syncnode
COPY --chown=65532:65532 rootfs/ /
ENV SYNCNODE_DATA_DIR=/data
USER 65532:65532
VOLUME /data
STOPSIGNAL SIGTERM
# Healthy means: the etcd that this node uses answers a linearizable read.
HEALTHCHECK --interval=15s --timeout=6s --start-period=60s --retries=3 \
  CMD ["/syncnode", "lease", "list", "--backend-timeout", "5s"]
ENTRYPOINT ["/syncnode"]
CMD ["serve"]
