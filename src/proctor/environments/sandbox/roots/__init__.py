"""Root file systems for the sandbox: imported images, the host's own, and what is built on them.

    build            image, base and Dockerfile to layers
    recipe           what a build consists of, as a digest
    workplace        the sandbox that they are carried out in, with its network
    layers           what each leaves, kept by content
    dockerfile       a Dockerfile as values
    dockerfile_words their words
    context          the files that COPY takes
    images           imported root file systems
    image_name       what images are called
    image_tar        archives of strangers
    saved_files      the files of what `docker save` writes, or of an OCI image layout
    saved_image      the one that is meant
    saved_layers     its layers, put on one another
    tree             files as they lie in such a directory
    host_base        the host's own system directories
    skeletons        copies that are made once and kept

Nothing here starts a trial.
"""
