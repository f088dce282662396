"""Root file systems for the sandbox: images, the host's, and what is built on them.

    build            builds the root of a task: image or base, and Dockerfile
    bases            what a build starts from: images, the host's files, nothing
    stages           builds the stages of a Dockerfile, each instruction as a layer, in a sandbox
    steps            runs the steps of a layer in a sandbox
    builders         builds with buildah or docker instead
    layers           the cache of layers that builds leave
    dockerfile       parses a Dockerfile into stages
    dockerfile_text  splits its text into statements and words, and expands variables
    instructions     turns the instructions of a stage into steps
    context          selects the files that COPY takes
    images           the store of images
    image            an image of it, and the names of images
    prune            removes images and layers beyond the limit of the store
    pull             pulls images of registries into the store
    registry         the client of registries
    unpacking        a process that unpacks layers with their owners
    layer_tree       writes a layer as a lower directory of an overlay
    image_source     writes what is imported: archives, directories, saved images
    image_tar        unpacks untrusted tar archives
    saved_files      opens the files of `docker save` archives and OCI image layouts; merges layers
    saved_image      selects the image in such an archive
    tree             writes files with owners and modes
    host_base        a root from the host's system directories

Builds run in their own sandboxes; trials are started elsewhere.
"""
