"""Images from registries, by the OCI distribution protocol, without a daemon.

    reference        what a name means: host, repository, tag or digest
    configuration    registries.toml: mirrors, and hosts that are contacted over plain HTTP
    credentials      users and passwords of ~/.docker/config.json and its credential helpers
    client           requests: authentication, redirects, retries, limits
    remote_files     manifests and configurations, as the files of a saved image
    blobs            downloads of layers, checked while they arrive

Nothing that a registry sends is believed: every document and every layer is checked against the
digest by which it was asked for. Layers are unpacked elsewhere.
"""
