"""Sealed trials as OpenTelemetry spans, by the conventions for generative AI, as OTLP JSON.

    export     the file: one line a trial, each a whole ExportTraceServiceRequest
    model      what OTLP JSON consists of
    carried    which field of a record becomes which attribute
    spans      a trial and its traces to spans
    messages   … and to the messages in their attributes
    times      when each of them began and ended
    back       spans to what a record and a trace say: what the loss report is made by

Nothing is sent anywhere: a collector's receiver for OTLP JSON files reads what is written.
"""
