"""What of `chat` may be in no file: its key, wherever that comes from, and no word in its place."""

import pytest

from proctor.harbor.agents import find_keys
from proctor.harbor.configs import AgentConfig, JobConfig
from proctor.job.sealing import find_secrets
from tests.agents.chat.talks import KEY

HOST = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": "of-another-agent"}


def job_of(name: str, **env: str) -> JobConfig:
    return JobConfig(job_name="j", agents=[AgentConfig(name=name, model_name="m", env=env)])


@pytest.mark.parametrize(("name", "keys"), [("chat", {"OPENAI_API_KEY": KEY}), ("oracle", {})])
def test_the_hosts_key_is_a_secret_of_chat_alone(name: str, keys: dict[str, str]) -> None:
    job = job_of(name)
    assert find_keys(job.agents[0], HOST) == keys
    assert find_secrets(job, HOST) == keys


def test_a_key_of_its_own_goes_before_the_hosts() -> None:
    assert find_secrets(job_of("chat", OPENAI_API_KEY="sk-other-key"), HOST) == {
        "OPENAI_API_KEY": "sk-other-key"
    }


def test_a_word_in_place_of_a_key_keeps_no_trial_out_of_the_ledger() -> None:
    assert find_secrets(job_of("chat", OPENAI_API_KEY="ollama", MY_TOKEN=KEY), {}) == {
        "MY_TOKEN": KEY
    }


def test_two_agents_may_have_other_keys_under_one_name() -> None:
    agents = [
        AgentConfig(name="chat", model_name="m", env={"OPENAI_API_KEY": key})
        for key in ("sk-the-first", "sk-the-second", "sk-the-first")
    ]
    assert find_secrets(JobConfig(job_name="j", agents=agents), {}) == {
        "OPENAI_API_KEY": "sk-the-first",
        "OPENAI_API_KEY (2)": "sk-the-second",
    }
