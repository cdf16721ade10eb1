"""The calls to Qdrant: points by kind and field, collections, and the alias that names the one in use."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from ..records import Facts, QdrantSettings, extra
from ..words import Asked, packed, unpacked
from . import read_facts, written
from .postings import K1, B

AT_ONCE = 256  # points of one call
TIMEOUT = 60  # seconds for one call
FACTS_OF_BEFORE = UUID("5f2dcf5e-7d0b-4c52-8a3c-6c6c616d6173")  # of a collection without words
FACTS = uuid5(FACTS_OF_BEFORE, "words")
WORDS = "words"  # the name of the sparse vectors
FIELDS = {"kind_of_document": "metadata.kind"}  # names of fields in filters that are not their own
INDEXED = ("kind", "owner", "hash", "id", "metadata.kind")  # the fields that filters ask for


def key_of(*parts: str) -> str:
    """The id of a point, made of what it is about, so that writing it twice gives one point."""
    return str(uuid5(FACTS_OF_BEFORE, "\0".join(parts)))


def blank(width: int) -> list[float]:
    """The vector of points that are no chunks; a collection has vectors, also of a memory without a model."""
    return [0.0] * max(width, 1)


class Points:
    """The points of one memory. collection: of some methods; the one in use if it is not given."""

    def __init__(self, settings: QdrantSettings) -> None:
        qdrant = extra("qdrant_client")
        self._models = qdrant.models
        self.alias = settings.collection
        self.is_local = "://" not in settings.url
        where = {"path": settings.url} if self.is_local else {
            "url": settings.url, "api_key": settings.api_key, "timeout": TIMEOUT
        }  # fmt: skip
        if self.is_local:  # its files have modes of the client's
            Path(settings.url).mkdir(mode=0o700, parents=True, exist_ok=True)
        self._client = qdrant.QdrantClient(**where)
        self.secret = secrets.token_bytes(16)  # of a new memory; ids of chunks are made with it

    def close(self) -> None:
        self._client.close()

    # Points

    def filter(
        self, kind: str, owners: frozenset[str] | None = None, besides: Sequence[str] = (),
        **fields: Sequence[str],
    ) -> Any:  # fmt: skip
        """besides: hashes of texts."""
        wanted = {"kind": [kind]} | ({} if owners is None else {"owner": sorted(owners)}) | fields
        without = [self._any("hash", besides)] if besides else None
        return self._models.Filter(must=[self._any(*one) for one in wanted.items()], must_not=without)

    def _any(self, key: str, some: Sequence[str]) -> Any:
        match = self._models.MatchAny(any=list(some))
        return self._models.FieldCondition(key=FIELDS.get(key, key), match=match)

    def scroll(
        self, kind: str, owners: frozenset[str] | None = None, collection: str = "", *, vectors: bool = False,
        **fields: Sequence[str],
    ) -> Iterator[Any]:  # fmt: skip
        """All points that a filter takes, in no order. vectors: with them."""
        condition, offset = self.filter(kind, owners, **fields), None
        while True:
            some, offset = self._client.scroll(
                collection or self.alias, condition, limit=AT_ONCE, offset=offset, with_payload=True,
                with_vectors=vectors,
            )  # fmt: skip
            yield from some
            if offset is None:
                return

    def nearest(self, vector: list[float], condition: Any, limit: int, offset: int) -> Any:
        """Chunks that a filter takes by score, the highest first."""
        return self._client.query_points(
            self.alias, query=vector, query_filter=condition, limit=limit, offset=offset, with_payload=True
        ).points

    def wordiest(self, asked: Sequence[Asked], condition: Any, limit: int, offset: int) -> Any:
        """Chunks that a filter takes and that have a word of a query, by BM25, the best first."""
        query = self._models.SparseVector(
            indices=[one.term for one in asked], values=[float(one.times) for one in asked]
        )
        return self._client.query_points(
            self.alias, query=query, using=WORDS, query_filter=condition, limit=limit, offset=offset,
            with_payload=True,
        ).points  # fmt: skip

    def cosines(self, vector: list[float], keys: Sequence[str]) -> dict[str, float]:
        """The cosines of these chunks."""
        condition = self._models.Filter(must=[self._models.HasIdCondition(has_id=list(keys))])
        found = self._client.query_points(
            self.alias, query=vector, query_filter=condition, limit=len(keys), with_payload=False
        ).points
        return {str(one.id): min(1.0, float(one.score)) for one in found}

    def with_words(self, vector: list[float], text: str, mean: int) -> Any:
        """The vectors of a chunk: BM25 without what Qdrant knows of words. mean: about a chunk's terms.

        text: that of the chunk with its headings.
        """
        terms, counts = unpacked(packed(text))
        length = K1 * (1 - B + B * sum(counts) / mean)
        values = [count * (K1 + 1) / (count + length) for count in counts]
        return {"": vector or blank(0), WORDS: self._models.SparseVector(indices=terms, values=values)}

    def payload(self, key: str, collection: str = "") -> dict[str, Any] | None:
        found = self._client.retrieve(collection or self.alias, [key], with_payload=True)
        return found[0].payload if found else None

    def upsert(self, points: Sequence[tuple[str, Any, Any]], collection: str = "") -> None:
        """Writes points: key, payload, vector."""
        for first in range(0, len(points), AT_ONCE):
            some = [
                self._models.PointStruct(id=key, vector=vector, payload=payload)
                for key, payload, vector in points[first : first + AT_ONCE]
            ]
            self._client.upsert(collection or self.alias, some, wait=True)

    def delete(self, key: str) -> None:
        self._client.delete(self.alias, [key], wait=True)

    def delete_all(self, kind: str, owner: str, hash: str) -> None:
        condition = self.filter(kind, frozenset({owner}), hash=[hash])
        self._client.delete(self.alias, self._models.FilterSelector(filter=condition), wait=True)

    # Collections

    def facts(self, collection: str = "") -> Facts | None:
        """What the vectors of a collection were made with; None if it is no memory."""
        found = self.payload(str(FACTS), collection) or self.payload(str(FACTS_OF_BEFORE), collection)
        return read_facts(found["facts"]) if found else None

    def learn_secret(self, facts: Facts) -> None:
        """Reads the secret of the collection in use; one of an earlier version gets this one."""
        key = str(FACTS if self.has_words() else FACTS_OF_BEFORE)
        payload = self.payload(key) or {}
        if "secret" in payload:
            self.secret = bytes.fromhex(payload["secret"])
        else:
            self.upsert([(key, payload | {"secret": self.secret.hex()}, blank(facts.width))])

    def has_words(self, collection: str = "") -> bool:
        """Whether its chunks have words; an earlier version's have not."""
        return self.payload(str(FACTS), collection) is not None

    def has_alias(self) -> bool:
        return self.alias in {one.alias_name for one in self._client.get_aliases().aliases}

    def is_collection(self) -> bool:
        return bool(self._client.collection_exists(self.alias))

    def current(self) -> str:
        """The collection that the alias means."""
        found = (one for one in self._client.get_aliases().aliases if one.alias_name == self.alias)
        return str(next(found).collection_name)

    def target(self) -> str:
        """The collection that a rebuild fills."""
        return f"{self.alias}.{int(self.current().rpartition('.')[2]) + 1}"

    def prepare(self, collection: str, facts: Facts) -> None:
        """Makes a collection; one that is there with these facts stays."""
        models = self._models
        if self._client.collection_exists(collection):
            if self.has_words(collection) and self.facts(collection) == facts:
                return
            self._client.delete_collection(collection)
        # Points of other kinds have vectors of zeros, which the cosine does not take; ours have length 1.
        self._client.create_collection(
            collection,
            vectors_config=models.VectorParams(size=max(facts.width, 1), distance=models.Distance.DOT),
            sparse_vectors_config={WORDS: models.SparseVectorParams(modifier=models.Modifier.IDF)},
        )
        for field in () if self.is_local else INDEXED:
            self._client.create_payload_index(collection, field, models.PayloadSchemaType.KEYWORD)
        payload = {"kind": "facts", "facts": written(facts), "secret": self.secret.hex()}
        self.upsert([(str(FACTS), payload, blank(facts.width))], collection)

    def point_alias(self, collection: str, replacing: bool = False) -> None:
        models = self._models
        old = models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=self.alias))
        new = models.CreateAliasOperation(
            create_alias=models.CreateAlias(collection_name=collection, alias_name=self.alias)
        )
        self._client.update_collection_aliases([old, new] if replacing else [new])

    def switch(self, target: str, facts: Facts) -> None:
        """Puts a rebuilt collection into use; the documents are copied just before."""
        old = self.current()
        texts = [one.payload for one in self.scroll("text", collection=target)]
        chunks = {(row["owner"], row["hash"]): row["chunks"] for row in texts}
        documents = [
            (str(one.id), row | {"chunks": chunks.get((row["owner"], row["hash"]), 0)}, blank(facts.width))
            for one in self.scroll("document")
            for row in [one.payload]
        ]
        self.upsert(documents, target)
        self.point_alias(target, replacing=True)
        self._client.delete_collection(old)
