"""The OpenAPI document is whole, closed where it has to be, and its examples are true."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, RootModel
from tests.live.api.asking import Api

from aryl.core.model import JobState
from aryl.live.api import documents
from aryl.live.api.examples import EXAMPLES
from aryl.policies.reasons import Wait
from aryl.wire import views
from aryl.wire.job_file import JobFile


@pytest.fixture
def document(api: Api) -> dict[str, Any]:
    found: dict[str, Any] = api.get(None, "/openapi.json").json()
    return found


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


def test_it_is_openapi_3_1(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    assert document["info"]["title"] == "Aryl"


def test_every_operation_says_what_it_does_and_how_it_refuses(document: dict[str, Any]) -> None:
    assert len(operations(document)) == 23
    for path, method, operation in operations(document):
        where = f"{method} {path}"
        assert operation["summary"], where
        assert operation["description"], where
        if not path.startswith("/v1"):
            continue
        assert operation["security"] == [{"bearer": []}], where
        needed = {"401", "503"}
        needed |= {"404"} if "{" in path else set()
        needed |= {"413", "422"} if "requestBody" in operation else set()
        assert needed <= operation["responses"].keys(), where
        for status, response in operation["responses"].items():
            if status >= "4":
                assert list(response["content"]) == ["application/problem+json"], where
                assert response["content"]["application/problem+json"]["example"]["status"] == int(status)


def test_states_and_reasons_are_closed(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert schemas["JobState"]["enum"] == [state.value for state in JobState]
    reason = schemas["WhyView"]["properties"]["reason"]["anyOf"]
    assert reason[0]["enum"] == [wait.name for wait in Wait]
    assert reason[1] == {"type": "null"}


def test_every_reference_leads_somewhere_and_every_schema_is_used(document: dict[str, Any]) -> None:
    found: set[str] = set()

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            found.update([node["$ref"]] if isinstance(node.get("$ref"), str) else [])
            for part in node.values():
                walk(part)
        elif isinstance(node, list):
            for part in node:
                walk(part)

    walk(document)
    assert found == {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}


def test_every_example_fits_its_model(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    for name, example in EXAMPLES.items():
        model = JobFile if name == "JobFile" else getattr(views, name, None) or getattr(documents, name)
        assert issubclass(model, BaseModel)
        checked = model.model_validate(example)
        assert schemas[name]["examples"] == [example]
        if not issubclass(model, RootModel | views.Request) and name not in ("JobFile", "Problem"):
            assert checked.model_dump(mode="json") == example


def test_bodies_and_answers_have_examples(document: dict[str, Any]) -> None:
    for path, method, operation in operations(document):
        contents = [operation.get("requestBody", {}).get("content", {})]
        contents += [operation["responses"].get(status, {}).get("content", {}) for status in ("200", "201")]
        for content in contents:
            schema = content.get("application/json", {}).get("schema", {})
            for part in [schema, *schema.get("anyOf", [])]:
                if "$ref" in part:
                    assert part["$ref"].rpartition("/")[2] in EXAMPLES, f"{method} {path}"
