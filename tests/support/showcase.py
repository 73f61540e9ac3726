"""A few runs in different states, as an operator would meet them: for screenshots and by hand."""

from fake_daemon import advance, play
from simulated_runs import MIB, Model, SimulatedRun

SMALL = Model(name="small", classes={"EncoderLayer": 8}, base_bytes=150 * MIB)
TRANSLATE = Model(name="translate-base", classes={"EncoderLayer": 6, "DecoderLayer": 6},
                  base_bytes=420 * MIB, hidden=256)
LARGE = Model(name="base,layers=24", classes={"BertLayer": 24}, base_bytes=1300 * MIB, hidden=512,
              heads=8)


def showcase(daemon):
    """Runs on the daemon; the live ones come back as (id, simulated run)."""
    squad = SimulatedRun("squad-512", seed=3, budget=560 * MIB, model=SMALL, steps_total=600,
                         command="pudica-train --daemon --data text:squad.txt --max-length 512")
    squad_id = play(daemon, squad, 230)
    daemon.push(squad_id, [{"type": "budget", "seq": 1, "step": squad.next_step,
                            "budget_bytes": 430 * MIB}])
    squad.set_budget(430 * MIB)
    advance(daemon, squad_id, squad, 140)
    translate = SimulatedRun("translate-nightly", seed=5, budget=1500 * MIB, model=TRANSLATE,
                             steps_total=4000, lengths=(32, 384), user="grace", device="cuda:0")
    translate_id = play(daemon, translate, 300)
    bert = SimulatedRun("bert-finetune", seed=8, budget=4200 * MIB, model=LARGE, steps_total=900,
                        lengths=(64, 384), device="cuda:0", user="grace")
    bert_id = play(daemon, bert, 120)
    fresh = SimulatedRun("ablation-heads-2", seed=9, budget=700 * MIB, model=SMALL, learning=40)
    fresh_id = play(daemon, fresh, 4)
    return [(squad_id, squad), (translate_id, translate), (bert_id, bert), (fresh_id, fresh)]


def share_device(daemon, runs):
    """Puts two runs of a showcase into one group, and adds learned models: what the stand-in does
    not work out by itself."""
    (translate_id, translate), (bert_id, bert) = runs[1], runs[2]
    entries = [{"id": run_id, "share_bytes": 4096 * MIB, "need_bytes": one.budget,
                "budget_bytes": one.budget, "pending_bytes": None}
               for run_id, one in ((translate_id, translate), (bert_id, bert))]
    daemon.groups = [{"name": "cuda:0", "total_bytes": 8192 * MIB, "runs": entries,
                      "assigned_bytes": sum(entry["budget_bytes"] for entry in entries)}]
    for run_id in (translate_id, bert_id):
        daemon.runs[run_id].view["group"] = "cuda:0"
    daemon.models = [
        {"fingerprint": "small-cpu-9f2c", "bytes": 48210, "recorded_steps": 210,
         "distinct_shapes": 57, "runs": 5, "updated_at": "2026-01-01T12:00:00Z"},
        {"fingerprint": "translate-base-cuda-71bb", "bytes": 131072, "recorded_steps": 64,
         "distinct_shapes": 41, "runs": 2, "updated_at": "2026-01-02T08:30:00Z"}]
