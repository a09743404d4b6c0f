"""The monitor records what it is told, and changes nothing."""

import inspect
import math

from helpers import logged
from tensorboard.backend.event_processing import data_provider
from tensorboard.backend.event_processing import plugin_event_multiplexer as event_multiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins import base_plugin
from tensorboard.plugins.hparams.backend_context import Context

from chargpt.config import Config, OptimConfig
from chargpt.session.monitor import Monitor, SilentMonitor, compared_settings
from chargpt.training.trainer import Step


def test_losses_and_samples_are_recorded_once(tmp_path):
    with Monitor(tmp_path, Config(), step=0, is_new=True) as monitor:
        monitor.log_evaluation(0, 2.0, sample="text")
        monitor.step_done()
        monitor.log_training(20, 1.5, Step(1.4, 0.7, 1e-3), chars_per_second=0.0)
        monitor.log_evaluation(20, math.log(2), sample="", seen={"novelty/longest_copy": 7.0})
    first, second, third = logged(tmp_path)
    assert first == {"step": 0, "val/loss": 2.0, "val/bits_per_char": 2.0 / math.log(2), "sample": "text"}
    assert second == {"step": 20, "train/loss": 1.5, "lr": 1e-3, "grad_norm": 0.7}  # a speed that is not known yet is left out
    assert third == {"step": 20, "val/loss": math.log(2), "val/bits_per_char": 1.0, "novelty/longest_copy": 7.0}


def test_a_resumed_run_drops_what_it_logs_again(tmp_path):
    for is_new in (True, False):
        with Monitor(tmp_path, Config(), step=0 if is_new else 10, is_new=is_new) as monitor:
            for step in (0, 10, 20) if is_new else (20, 30):
                monitor.log_evaluation(step, 1.0 + is_new, sample="")
    assert [(line["step"], line["val/loss"]) for line in logged(tmp_path)] == [(0, 2.0), (10, 2.0), (20, 1.0), (30, 1.0)]


def test_runs_are_compared_by_what_decides_their_learning_and_never_changes():
    settings = compared_settings(Config())
    assert settings["optim.learning_rate"] == 3e-3 and settings["optim.betas"] == "[0.9, 0.99]" and "model.n_layer" in settings
    assert {name for name in settings if name.startswith("train.")} == {"train.batch_size", "train.accumulate", "train.seed"}


def test_tensorboard_opens_with_the_settings_that_differ_and_the_lowest_loss(tmp_path):
    for name, rate, losses in (("a", 1e-3, [4.0, 1.5]), ("b", 2e-3, [4.0, 1.25, 1.75])):
        (tmp_path / name).mkdir()
        with Monitor(tmp_path / name, Config(optim=OptimConfig(learning_rate=rate)), step=0, is_new=True) as monitor:
            for step, loss in enumerate(losses):
                monitor.log_evaluation(step, loss, sample="", best=min(losses[: step + 1]), seen={"novelty/longest_copy": 1.0})
                monitor.log_training(step, loss, Step(loss, 0.7, rate), chars_per_second=10.0)
    runs = event_multiplexer.EventMultiplexer().AddRunsFromDirectory(str(tmp_path))
    runs.Reload()
    provider = data_provider.MultiplexerDataProvider(runs, str(tmp_path))
    context = Context(base_plugin.TBContext(data_provider=provider))
    request = RequestContext()
    metadata = context.hparams_metadata(request, "")
    shown = context.experiment_from_metadata(request, "", True, metadata, [])
    differ = [setting.name for setting in shown.hparam_infos if setting.differs]
    assert differ == [setting.name for setting in shown.hparam_infos][: len(differ)] == ["optim.learning_rate"]
    first = shown.metric_infos[0].name.tag
    last = provider.read_last_scalars(request, experiment_id="", plugin_name="scalars")
    assert {run: tags[first].value for run, tags in last.items()} == {"a": 1.5, "b": 1.25}


def test_a_silent_monitor_is_told_the_same_as_one_that_records():
    names = [name for name in vars(Monitor) if callable(getattr(Monitor, name)) and name not in ("__init__", "__enter__")]
    assert "log_evaluation" in names
    for name in names:
        mine, other = (inspect.signature(getattr(kind, name)) for kind in (SilentMonitor, Monitor))
        assert mine == other and name in vars(SilentMonitor), name
