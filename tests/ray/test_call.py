"""What the ingress reads of a request."""

from __future__ import annotations

from llama_srb.ray.call import id_of
from tests.support.rows import each_row

ID = "0123456789abcdef" * 2
NAMING: list[tuple[str, dict[str, object]]] = [  # paths and bodies that name a request
    (f"/v1/responses/resp_{ID}/input_items", {}), (f"/responses/{ID}", {}),
    (f"/v1/completions/cmpl-{ID}/0", {}),
    ("/v1/responses", {"previous_response_id": f"resp_{ID}", "input": "x"}),
    ("/v1/responses", {"input": [{"role": "user"}, {"type": "item_reference", "id": f"msg_{ID}_i0"}]}),
    ("/v1/completions", {"continue": {"id": f"cmpl-{ID}"}}), ("/v1/completions", {"continue": {"id": ID}}),
]  # fmt: skip


@each_row(("path", "body"), NAMING)
def test_the_server_that_made_what_a_request_names_is_asked_for(path: str, body: dict[str, object]) -> None:
    assert id_of(path, body) == ID


def test_a_request_that_names_nothing_has_no_id() -> None:
    for body in ({"input": [{"id": ID, "role": "user"}, 7]}, {"input": "x", "continue": 7}, {}):
        assert id_of("/v1/responses", body) is None
