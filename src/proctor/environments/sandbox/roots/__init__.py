"""Root file systems for the sandbox: imported images, the host's own, and what is built on them.

    build            image, base and Dockerfile to layers
    recipe           what a build consists of, as a digest
    steps            a Dockerfile's instructions, one by one
    workplace        the sandbox that they are carried out in, with its network
    layers           what each leaves, kept by content
    layer_place      where layers are kept
    dockerfile       a Dockerfile as values
    dockerfile_text  its lines
    dockerfile_words their words
    dockerignore     what a build does not see
    context          the files that COPY takes
    images           imported root file systems
    image_import     a tar file or a directory to one of them
    tree             files as they lie in such a directory
    host_base        the host's own system directories
    etc              its copy of /etc
    skeletons        copies that are made once and kept

Nothing here starts a trial.
"""
