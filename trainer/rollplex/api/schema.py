"""From the models to a structural Kubernetes schema: types, bounds, defaults, descriptions, nothing between fields.

A text's pattern and a number's lower limit become CEL rules where the model knows a way out
(:class:`~rollplex.api.base.WayOut`): the server's own message would show a regular expression and no way out.
"""

from __future__ import annotations

from typing import Any

from pydantic.fields import FieldInfo

from rollplex.api.base import Section, WayOut
from rollplex.api.cel_text import Cel, literal, say, validation
from rollplex.api.fields import children, section_of
from rollplex.api.wording import marks_of

Schema = dict[str, Any]

_KEPT = (
    *("type", "format", "enum", "items", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    *("minLength", "maxLength", "pattern", "minItems", "maxItems", "minProperties", "maxProperties"),
    "x-kubernetes-int-or-string",
)


def structural(section: type[Section], description: str = "", *, defaults: bool = True) -> Schema:
    """The schema of a section and all below it; ``defaults`` are filled in by the server."""
    schema: Schema = {"type": "object"}
    if description:
        schema["description"] = description
    schema["properties"] = {
        alias: _of_field(section, alias, field, defaults) for alias, field in children(section).items()
    }
    required = [alias for alias, field in children(section).items() if field.is_required()]
    if required:
        schema["required"] = required
    if section.model_config.get("extra") == "allow":
        schema["x-kubernetes-preserve-unknown-fields"] = True
    return schema


def _of_field(section: type[Section], alias: str, field: FieldInfo, defaults: bool) -> Schema:
    inner = section_of(field.annotation)
    own = _not_null(section.model_json_schema(by_alias=True)["properties"][alias])
    if inner is not None:
        schema = structural(inner, defaults=defaults)
        if own.get("type") == "array":
            schema = {"type": "array", "items": schema} | {
                key: own[key] for key in ("minItems", "maxItems") if key in own
            }
    else:
        schema = _leaf(own)
        _explain_limits(schema, field)
    if defaults and not field.is_required():
        default = field.get_default(call_default_factory=True, validated_data={})
        if default is not None:
            schema["default"] = _plain(default)
    return {"description": field.description or "", **schema}


def _not_null(own: Schema) -> Schema:
    """The one alternative that is a value: null is absence, as to the server."""
    [alternative] = [option for option in own.get("anyOf", [own]) if option.get("type") != "null"]
    return dict(alternative)


def _leaf(own: Schema) -> Schema:
    """A plain value's schema without what a structural schema does not know."""
    schema = {key: own[key] for key in _KEPT if key in own}
    if "const" in own:
        schema |= {"type": "string", "enum": [own["const"]]}
    if schema.get("type") == "integer":
        schema["format"] = "int64"
    if "items" in schema:
        schema["items"] = _leaf(schema["items"])
    if isinstance(value := own.get("additionalProperties"), dict):
        # in a mapping of texts a null is a value: the template's takes a key away
        schema["additionalProperties"] = _leaf(_not_null(value)) | ({"nullable": True} if "anyOf" in value else {})
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if exclusive in schema:  # a flag in OpenAPI 3.0
            schema |= {bound: schema[exclusive], exclusive: True}
    if not schema or schema == {"type": "object"}:
        schema["x-kubernetes-preserve-unknown-fields"] = True  # a free-form part
    return schema


def _explain_limits(schema: Schema, field: FieldInfo) -> None:
    """Turn the limits that have a way out into rules that say it, in the words of ``rollplex validate``."""
    way_out = next((mark.text for mark in marks_of(field) if isinstance(mark, WayOut)), None)
    if way_out is None:
        return
    if "pattern" in schema:
        rule = f"self.matches({literal(schema.pop('pattern'))})"
        message = say('"{}" is malformed; ' + way_out, "self")
    else:
        low = schema.pop("minimum")
        rule = f"self >= {low:g}" if schema["type"] == "integer" else f"self >= {float(low)}"
        message = say(f"{{}} is below the minimum {low:g}; {way_out}", "self")
    schema["x-kubernetes-validations"] = [validation(Cel(rule, message), way_out)]


def _plain(value: Any) -> Any:
    if isinstance(value, Section):
        # {} would do for the server, which fills in the fields' own defaults, but rules are tried on a default as it is
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return list(value) if isinstance(value, tuple) else value
