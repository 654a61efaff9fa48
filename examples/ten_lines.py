"""How much does a receiver's budget cost? The README's example: run it with `python examples/ten_lines.py`."""

import dracofl

task = ["task.kind=logistic", "model.kind=softmax", "train.step=0.01", "evaluate.every_s=20"]
for psi in ("none", 20, 5):
    run = dracofl.run("tiny", [*task, f"method.psi={psi}"], seed=7)
    times_s, accuracy = run.curve("accuracy")  # (evaluations,) and (evaluations, users)
    messages = run.summary["messages"]
    print(
        f"psi {psi!s:>4}: applied {messages['applied']:5} of {messages['sent']} messages, "
        f"accuracy {accuracy[1].mean():.3f} at t = {times_s[1]:.0f} s, {accuracy[-1].mean():.3f} at the end"
    )
