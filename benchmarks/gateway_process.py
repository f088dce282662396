"""The model gateway with many open accounts; prints its address and tokens, serves until ended.

python -m benchmarks.gateway_process ADDRESS_OF_THE_MODEL DIRECTORY N_TRIALS
"""

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from proctor.gateway.account import Account
from proctor.gateway.gateway import open_gateway
from proctor.gateway.options import GatewayOptions
from proctor.harbor.configs import AgentConfig


async def main(model: str, directory: Path, n_trials: int) -> None:
    """Serve until ended."""
    host = {"OPENAI_API_KEY": "sk-a-key-of-the-host-0123456789"}
    config = AgentConfig(name="command", model_name="openai/gpt-4o")
    options = GatewayOptions(host, {"openai": f"{model}/v1"})
    async with open_gateway(options) as gateway, AsyncExitStack() as stack:
        accounts = []
        for number in range(n_trials):
            place = directory / str(number)
            place.mkdir(parents=True, exist_ok=True)
            account = gateway.open_agent(str(number), str(place), config, {})
            if not isinstance(account, Account):
                raise TypeError("the gateway serves no such agent")
            await stack.enter_async_context(account.opened())
            accounts.append(account)
        address = f"http://127.0.0.1:{gateway.port}/openai"
        tokens = [account.token for account in accounts]
        print(json.dumps({"address": address, "tokens": tokens}), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
