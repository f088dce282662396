"""Root file systems for the sandbox: imported images, the host's, and what is built on them.

    build            builds the root of a task: image or base, and Dockerfile
    recipe           the steps of a build
    workplace        the sandbox in which a build runs, with its network
    layers           the cache of layers that builds leave
    dockerfile       parses a Dockerfile
    dockerfile_words splits an instruction into words and expands variables
    context          selects the files that COPY takes
    images           the store of imported images
    image_name       names of images
    image_tar        unpacks untrusted tar archives
    saved_files      opens the files of `docker save` archives and OCI image layouts
    saved_image      selects the image in such an archive
    saved_layers     merges its layers
    tree             writes files with owners and modes
    host_base        a root from the host's system directories
    skeletons        copies of directories that are made once and cached

Builds run in their own sandboxes; trials are started elsewhere.
"""
