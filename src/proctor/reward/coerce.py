"""Odd reward.json values to rewards by pydantic's own rules, as harbor does it.

Apart from `read`, which loads this only for values that are not plain numbers: pydantic takes
longer to load than a hundred trials take to read.
"""

from pydantic_core import SchemaValidator, ValidationError, core_schema

from proctor.reward.number import Rewards

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
    """Rewards of a parsed document.

    Raises:
        ValidationError: pydantic's, when it is not a map of what can pass for numbers.
    """
    validated: dict[str, Rewards | None] = _VALIDATOR.validate_python({"rewards": document})
    return validated["rewards"]


def describe_refusal(error: ValidationError) -> str:
    """What pydantic found wrong, on one line."""
    details = error.errors()
    return "; ".join(f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in details)
