"""The Hugging Face hub: the front matter of a model card, and the way there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, HfApi, ModelCardData, constants
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    LocalTokenNotFoundError,
    OfflineModeIsEnabled,
)
from huggingface_hub.utils import validate_repo_id

from anypo.core.errors import UsageError

TransportError = HfHubHTTPError.__mro__[1]
"""What the hub's own HTTP library raises; which one that is depends on the hub's version."""


def front_matter(facts: Mapping[str, Any], results: Sequence[Mapping[str, Any]]) -> str:
    """YAML of a model card, between its lines of dashes; empty facts are left out.

    Parameters
    ----------
    facts : fields of `ModelCardData`: license, base_model, tags, …
    results : fields of `EvalResult`, one mapping for each measured number.
    """
    known = {name: value for name, value in facts.items() if value}
    found = [EvalResult(**dict(result)) for result in results] or None
    data = ModelCardData(**known, eval_results=found)
    return f"---\n{data.to_yaml(line_break=chr(10))}\n---\n"


def check_repo(repo: str) -> str:
    """The name of a repository, `user/name`; raises `UsageError` for another."""
    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise UsageError(f"{repo!r} names no repository ({error}): write user/name") from None
    if repo.count("/") != 1:
        raise UsageError(f"{repo!r} names no repository of a user: write user/name")
    return repo


def push(folder: Path, repo: str, *, private: bool = False, message: str = "") -> str:
    """Upload a folder as a model repository, which is made if absent; returns its address.

    The token is that of `hf auth login`, or `HF_TOKEN`. Raises `UsageError` without a token or a
    permission, and where the hub does not answer: the folder then stays as it is.
    """
    api = HfApi()
    again = f"{folder} is complete: push it later, or upload it by hand (hf upload {repo} {folder})"
    try:
        api.create_repo(check_repo(repo), private=private, exist_ok=True)
        api.upload_folder(
            repo_id=repo, folder_path=folder, commit_message=message or "anypo export"
        )
    except LocalTokenNotFoundError:
        raise UsageError(
            f"no token of the hub is on this machine: hf auth login. {again}"
        ) from None
    except HfHubHTTPError as error:
        code = getattr(error.response, "status_code", 0)
        if code in (401, 403):
            raise UsageError(
                f"the hub refuses to write {repo} (status {code}): log in with a token that may "
                f"write there, hf auth login. {again}"
            ) from None
        raise UsageError(f"the hub failed ({_first_line(error)}). {again}") from None
    except (OfflineModeIsEnabled, TransportError, OSError) as error:
        raise UsageError(
            f"the Hugging Face hub does not answer ({_first_line(error)}). {again}"
        ) from None
    return f"{constants.ENDPOINT}/{repo}"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
