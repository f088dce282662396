"""Images from registries, by the OCI distribution protocol, without a daemon.

    configuration    what a name means; registries.toml; users and passwords of Docker's
    client           requests: authentication, redirects, retries, limits
    blobs            downloads of layers, checked while they arrive; manifests and configurations

Nothing that a registry sends is believed: every document and every layer is checked against the
digest by which it was asked for. Layers are unpacked elsewhere.
"""
