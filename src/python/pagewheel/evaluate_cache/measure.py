"""Fills a report: the settings that are asked for, column by column."""

from __future__ import annotations

from collections.abc import Sequence

from pagewheel.errors import InvalidArgumentError
from pagewheel.evaluate_cache.report import Report
from pagewheel.evaluate_cache.run import FULL, Evaluation, Plan, Progress, Setting
from pagewheel.model_info import read_info

_CONTEXT = 2048  # where a model does not say its own


def settings(policies: Sequence[str], budgets: Sequence[float], plan: Plan) -> list[Setting]:
    """The full cache, then each policy at each budget. Raises InvalidArgumentError."""
    for budget in budgets:
        if not 0 < budget <= 1:
            raise InvalidArgumentError(f"a budget is {budget:g}; allowed: above 0, up to 1")
    chosen = [Setting(policy, budget) for policy in policies for budget in budgets]
    for setting in chosen:
        setting.config(plan, while_reading=True)
    return [Setting(FULL), *chosen]


def measure(
    evaluation: Evaluation,
    chosen: Sequence[Setting],
    parts: Sequence[str],
    report: Report,
    progress: Progress,
) -> None:
    """Measures what the report does not have yet."""
    for part in parts:
        for setting in chosen:
            if report.has(part, setting):
                continue

            def show(done: str, name: str = f"{part}, {report.key(setting)}") -> None:
                progress(f"{name}: {done}")

            if part in ("prose", "code"):
                if setting.text == FULL:
                    continue  # what the others are compared with
                recorders = evaluation.continued(part, setting, show)
                report.add(f"{part} agreement", setting, [one.agreement() for one in recorders])
                report.add(f"{part} KL", setting, [one.divergence() for one in recorders])
            elif part == "stream":
                context = read_info(evaluation.folder).context or _CONTEXT
                inside, beyond = evaluation.streamed(context, setting, show)
                report.add("perplexity inside", setting, inside)
                report.add("perplexity beyond", setting, beyond)
            else:
                report.add(part, setting, evaluation.told(part, setting, show))
