"""Convert odd reward.json values to rewards by pydantic's own rules, as harbor does.

A separate module, because `read` loads it only for values that are not plain numbers: pydantic
takes longer to load than a hundred trials take to read.
"""

from pydantic_core import SchemaValidator, ValidationError, core_schema

from proctor.reward.number import Rewards

# The schema of harbor's VerifierResult. Float comes first in the union, as in harbor: it decides
# what a value such as "1" becomes.
_rewards_schema = core_schema.nullable_schema(
    core_schema.dict_schema(
        core_schema.str_schema(),
        core_schema.union_schema([core_schema.float_schema(), core_schema.int_schema()]),
    )
)
_VALIDATOR = SchemaValidator(
    core_schema.typed_dict_schema(
        {"rewards": core_schema.typed_dict_field(_rewards_schema)}, cls_name="VerifierResult"
    ),
    core_schema.CoreConfig(title="VerifierResult"),
)


def coerce_rewards(document: object) -> Rewards | None:
    """Validate a parsed reward.json; None for null."""
    validated: dict[str, Rewards | None] = _VALIDATOR.validate_python({"rewards": document})
    return validated["rewards"]


def describe_refusal(error: ValidationError) -> str:
    """Format pydantic's errors on one line."""
    details = error.errors()
    return "; ".join(f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in details)
