"""Keys of a job config that harbor has added since 0.13.1, up to 0.25.0, and proctor does not have.

The list is complete: a test compares it with the wheel of harbor 0.25.0. Keys of task.toml are with
its models, in proctor.task. Does not refuse anything itself.
"""

from collections.abc import Mapping

JOB_KEYS: Mapping[str, Mapping[str, str]] = {
    "": {
        "install_only": "",
        "skip_credential_checks": "",
        "user_agent": "",
        "extra_instructions": "write the text to a file and name it in extra_instruction_paths",
        "source_jobs": "take it out; `proctor audit JOB --rerun N` runs trials again",
        # Of an earlier release; harbor 0.25 refuses these itself.
        "user_prompt_template_path": "",
        "acpx_config": "",
        # Of jobs that harbor's own servers run.
        "organization": "",
        "credential_mode": "",
        "static_outbound_ip": "",
        "job_secrets": "",
    },
    "agents": {
        "base_url": "take it out and pass --model-endpoint PROVIDER=URL",
        "model_api_key_name": "",
        "model_api_format": "",
        "skip_model_parsing": "",
        "n_concurrent": "limit all trials with n_concurrent_trials",
        "concurrency_group": "",
        "resume_trajectory": "",
        "load_trajectory": "",
        "include_logs": "",
        "exclude_logs": "",
        "secrets": "",
        "source": "",
    },
    "agents.mcp_servers": {"headers": ""},
    "environment": {"stream": ""},
    "environment.mounts": {},
    "environment.mounts.bind": {"selinux": ""},
    "verifier": {"include_logs": "", "exclude_logs": "", "extra_allowed_hosts": ""},
    "datasets": {"repo": "take it out and pass -d git+URL"},
    "artifacts": {"service": ""},
}
"""By table, without the indices of lists: each key, and what to do instead of taking it out."""
