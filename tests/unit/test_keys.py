"""Keys, the file of keys, budgets, and JWTs with the rights that they grant."""

from __future__ import annotations

import base64
import hmac
import json
import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from llama_srb.http.routes import ROUTES
from llama_srb.serving.keys import api_keys
from llama_srb.serving.keys import jwt as our_jwt
from llama_srb.serving.keys.api_keys import Grant, JwtError, Key, KeyFileError
from llama_srb.serving.limits import Budget, Budgets
from tests.support.rows import each_row

SECRET = "0123456789" * 4
RSA, EC = rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP256R1())


def test_a_file_has_the_written_entries_and_no_key(tmp_path: Path) -> None:
    file, key = tmp_path / "keys.json", api_keys.new_key()
    rows = (
        Key(name="ann", hash=api_keys.hashed(key), max_n=4, expires=datetime(2100, 1, 1, tzinfo=UTC)),
        Key(name="bob", hash=api_keys.hashed("other"), scopes=("admin",)),
    )
    api_keys.write(file, rows)
    assert api_keys.read(file) == rows
    assert key not in file.read_text()
    assert os.stat(file).st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["keys.json"]


FILES = [
    (b"{", "not a key file"),
    (b'{"keys": [{"name": "a b", "hash": "00"}]}', "keys.0.name"),
    (b'{"keys": [{"name": "a", "hash": "00"}]}', "keys.0.hash"),
    (b'{"keyz": []}', "keyz"),
    (None, "cannot read"),
]


@pytest.mark.parametrize(("data", "said"), FILES)
def test_an_invalid_file_is_an_error_that_names_the_place(
    tmp_path: Path, data: bytes | None, said: str
) -> None:
    file = tmp_path / "keys.json"
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(KeyFileError, match=said):
        api_keys.read(file)


def test_a_key_is_found_by_its_text_only() -> None:
    made = [api_keys.new_key() for _ in range(3)]
    rows = [Key(name=f"k{at}", hash=api_keys.hashed(key)) for at, key in enumerate(made)]
    found = [api_keys.find(rows, key) for key in (*made, made[0][:-1], "", rows[0].hash)]
    assert [key and key.name for key in found] == ["k0", "k1", "k2", None, None, None]


SCOPES = [
    (("chat",), ("complete", "chat"), True),
    (("chat",), ("complete",), False),
    (("admin",), ("embed",), True),
    ((), ("embed",), False),
]


@pytest.mark.parametrize(("own", "needed", "may"), SCOPES)
def test_a_scope_grants_its_routes_and_admin_grants_all(own: Any, needed: Any, may: bool) -> None:
    assert Grant(name="x", scopes=own).may(needed) == may


def test_every_route_asks_for_scopes_that_a_key_can_have() -> None:
    for route in ROUTES:
        assert set(route.scopes) <= set(api_keys.SCOPES)
        is_open = route.path.startswith(("/health", "/studio/")) or route.path == "/"
        assert bool(route.scopes) == (not is_open)
    by_path = {(route.method, route.path): route.scopes for route in ROUTES}
    assert by_path["POST", "/v1/completions"] == ("complete",)
    assert by_path["POST", "/v1/chat/completions"] == ("chat",)


def test_a_budget_refills_and_may_be_overdrawn_once() -> None:
    budget = Budget(60, 60, at=0.0)
    assert budget.wait == 0
    budget.left -= 90
    budget.refill(60, now=10.0)
    assert budget.wait == 21
    budget.refill(60, now=31.0)
    assert budget.wait == 0
    budget.refill(60, now=1000.0)
    assert budget.left == 60


def test_a_client_that_has_spent_its_tokens_gets_them_back_within_a_minute() -> None:
    now = 0.0
    budgets = Budgets(lambda: now)
    budgets.spend("ann", 60, 90)
    assert budgets.wait("ann", 60) == 31
    now = 20.0
    assert budgets.wait("ann", 60) == 11
    now = 60.0
    assert budgets.wait("ann", 60) == 0


def test_a_client_saves_up_the_tokens_of_one_minute_and_no_more() -> None:
    now = 0.0
    budgets = Budgets(lambda: now)
    budgets.spend("ann", 60, 10)
    now = 50.0
    budgets.spend("ann", 60, 90)
    assert budgets.wait("ann", 60) == 31


def test_full_budgets_are_forgotten() -> None:
    """JWTs may have any name, so budgets would grow without bound."""
    now = 0.0
    budgets = Budgets(lambda: now)
    for name in range(1000):
        budgets.spend(str(name), 60, 30)
        assert budgets.wait(f"never heard of {name}", 60) == 0
    budgets.spend("deep in debt", 60, 600)
    now = 90.0
    budgets.spend("another", 60, 60)
    assert len(budgets) == 2
    assert budgets.wait("deep in debt", 60) > 0


# JWTs


def signed(key: Any, algorithm: str, kid: str | None = None, **claims: Any) -> str:
    standard = {"sub": "ann", "exp": time.time() + 600, "scope": "complete chat other"}
    present = {name: value for name, value in (standard | claims).items() if value is not None}
    return jwt.encode(present, key, algorithm, headers={"kid": kid} if kid else None)


def forged(secret: bytes) -> str:
    """A JWT signed with a public key as its secret, which the library refuses to make."""
    head, claims, _ = signed(SECRET, "HS256").split(".")
    signature = hmac.digest(secret, f"{head}.{claims}".encode(), "sha256")
    return f"{head}.{claims}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


@pytest.fixture
def jwks(tmp_path: Path) -> Path:
    rsa_row = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(RSA.public_key())) | {"kid": "r"}
    ec_row = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(EC.public_key())) | {"kid": "e"}
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps({"keys": [rsa_row, ec_row]}))
    return file


def test_jwts_of_all_three_algorithms_grant_their_claims(jwks: Path) -> None:
    read = our_jwt.read(SECRET, jwks, None, None)
    assert read
    exp = int(time.time()) + 600
    expires = datetime.fromtimestamp(exp + our_jwt.LEEWAY, UTC)
    for key, algorithm, kid in ((SECRET, "HS256", None), (RSA, "RS256", "r"), (EC, "ES256", None)):
        grant = read.grant(signed(key, algorithm, kid, max_n=3, exp=exp))
        claimed = Grant(name="ann", scopes=("complete", "chat"), max_n=3, expires=expires)
        assert grant.model_dump(exclude={"signer"}) == claimed.model_dump()


def test_a_jwt_is_known_as_long_as_its_key_is_here_whatever_the_id_says(jwks: Path) -> None:
    before = our_jwt.read(SECRET, jwks, None, None)
    assert before
    grants = [before.grant(signed(*one)) for one in ((SECRET, "HS256"), (RSA, "RS256", "r"), (EC, "ES256"))]
    rows = json.loads(jwks.read_text())["keys"]
    other = jwt.algorithms.ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()).public_key())
    for secret, keys, left in (
        (SECRET, rows[::-1], [True, True, True]),
        (SECRET, [rows[0] | {"kid": "renamed"}], [True, True, False]),
        ("x" * 32, [rows[0], json.loads(other) | {"kid": "e"}], [False, True, False]),
    ):
        jwks.write_text(json.dumps({"keys": keys}))
        now = our_jwt.read(secret, jwks, None, None)
        assert now
        assert [now.has(grant) for grant in grants] == left


def test_a_jwt_that_expires_after_the_year_9999_is_valid() -> None:
    read = our_jwt.read(SECRET, None, None, None)
    assert read
    assert read.grant(signed(SECRET, "HS256", exp=10**18)).expires is None


@pytest.mark.parametrize(("key", "algorithm"), [(RSA, "RS256"), (EC, "ES256")])
def test_one_public_key_as_pem_is_enough(tmp_path: Path, key: Any, algorithm: str) -> None:
    file = tmp_path / "key.pem"
    file.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    read = our_jwt.read(None, file, None, None)
    assert read
    assert read.grant(signed(key, algorithm)).name == "ann"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"exp": time.time() - 86_400}, "expired"),
    ({"exp": None}, "exp"),
    ({"sub": None}, "sub"),
    ({"sub": "two words"}, "claims"),
    ({"nbf": time.time() + 86_400}, "not yet valid"),
    ({"aud": "others"}, "[Aa]udience"),
    ({"aud": None}, "aud"),
    ({"iss": "others"}, "[Ii]ssuer"),
    ({"max_n": "many"}, "claims"),
    ({"scope": 7}, "claims"),
]


@each_row(("claims", "said"), REFUSED)
def test_an_invalid_jwt_is_refused_with_the_reason(claims: dict[str, Any], said: str) -> None:
    read = our_jwt.read(SECRET, None, "us", "them")
    assert read
    fitting = {"aud": "us", "iss": "them"}
    assert read.grant(signed(SECRET, "HS256", **fitting)).name == "ann"
    with pytest.raises(JwtError, match=said):
        read.grant(signed(SECRET, "HS256", **fitting | claims))


def test_a_jwt_is_refused_unless_a_key_of_its_algorithm_signed_it(jwks: Path) -> None:
    """Unsigned JWTs are refused, and JWTs signed with a public key as a secret."""
    read = our_jwt.read(None, jwks, None, None)
    assert read
    public = RSA.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    for token in (signed(None, "none"), forged(public), signed(SECRET, "HS256"), "a.b.c", "x"):
        with pytest.raises(JwtError):
            read.grant(token)
    other = rsa.generate_private_key(65537, 2048)
    with pytest.raises(JwtError, match=r"[Ss]ignature"):
        read.grant(signed(other, "RS256", "r"))


def test_unusable_keys_of_jwts_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="has 5 bytes; it must have 32"):
        our_jwt.read("short", None, None, None)
    for text in ("", "{}", '{"keys": []}', "-----BEGIN PUBLIC KEY-----"):
        file = tmp_path / "bad"
        file.write_text(text)
        with pytest.raises(KeyFileError, match="neither"):
            our_jwt.read(None, file, None, None)


def test_a_key_expires() -> None:
    now = datetime.now(UTC)
    ends = [None, now + timedelta(minutes=1), now - timedelta(seconds=1)]
    assert [Grant(name="x", expires=end).is_over for end in ends] == [False, False, True]
