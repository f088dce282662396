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
    image_import     a tar file, a directory or a saved image to one of them
    image_name       what images are called
    image_tar        archives of strangers
    saved_files      the files of what `docker save` writes, or of an OCI image layout
    saved_index      which images are in it
    saved_image      the one that is meant
    saved_layers     its layers, put on one another
    tree             files as they lie in such a directory
    host_base        the host's own system directories
    etc              its copy of /etc
    skeletons        copies that are made once and kept

Nothing here starts a trial.
"""
