"""Scripts that found a fault in the code, named after it; each must hold now."""

from dataclasses import replace

from tests.sim.faults import Fault, Plan


def _plan(
    seed: int, horizon: float, *faults: Fault, slow_network: bool = False, files: bool = False
) -> Plan:
    return Plan(
        seed=seed,
        coordinators=2,
        workers=3,
        groups=3,
        files=files,
        lease=False,
        slow_network=slow_network,
        horizon=horizon,
        faults=faults,
    )


FOUND: dict[str, Plan] = {
    "who restarted while nobody led kept its groups, cold": _plan(
        45, 15.2, Fault(6.24, "store down", 754, 4.81), Fault(8.74, "crash worker", 328, 0.28)
    ),
    "who vanished and came back beside a dead leader kept its groups, cold": _plan(
        22, 20.7, Fault(13.99, "vanish leader", 718, 0.70), Fault(14.55, "vanish worker", 910, 0.28)
    ),
    "who came back after the store was emptied kept its groups, cold": _plan(
        145,
        20.0,
        Fault(15.24, "store restarts empty", 945, 1.34),
        Fault(16.60, "vanish worker", 325, 0.28),
        slow_network=True,
    ),
    "what peers remembered of who a worker was won over the map": _plan(
        83,
        18.0,
        Fault(9.53, "vanish worker", 665, 0.49),
        Fault(11.71, "crash coordinator", 841, 0.46),
        files=True,
    ),
    "who was told to stop while nobody led left before others could take over": _plan(
        506,
        30.0,
        Fault(12.65, "crash leader", 311, 5.5),
        Fault(13.35, "vanish leader", 718, 4.0),
        Fault(16.81, "worker leaves", 201, 0.0),
        Fault(17.47, "store restarts empty", 945, 1.0),
    ),
    "a quarantined group stayed with who had died, since all others were leaving": replace(
        _plan(
            59,
            15.24,
            Fault(7.75, "worker leaves", 161),
            Fault(9.86, "pool goes", 116),
            Fault(10.92, "vanish worker", 312, 2.16),
            Fault(12.83, "crash worker", 948, 0.28),
            slow_network=True,
        ),
        coordinators=3,
        groups=6,
    ),
    "a fail-over of the store lost renewals, and two led": replace(
        _plan(
            1,
            12.0,
            Fault(7.0, "store fails over", 0, 2.3),
            Fault(9.0, "cut leader from store", 2, 1.5),
            files=True,
        ),
        groups=6,
    ),
    "who came back got what a stand-by of a forgotten map was warm for": replace(
        _plan(
            2336,
            17.6,
            Fault(11.70, "crash leader", 778, 0.35),
            Fault(11.96, "store emptied", 995),
            Fault(12.61, "crash worker", 723, 0.49),
        ),
        groups=17,
    ),
    "a store that came back empty made a beating worker dead": replace(
        _plan(
            1842,
            14.7,
            Fault(5.50, "cut leader from worker", 35, 5.32),
            Fault(9.48, "store restarts empty", 216, 0.77),
        ),
        groups=5,
        lease=True,
    ),
    "who was told to stop left when an emptied store knew nobody but itself": replace(
        _plan(
            5835,
            16.8,
            Fault(9.28, "store down", 544, 2.69),
            Fault(11.60, "worker leaves", 305, 0.0),
            Fault(12.30, "store restarts empty", 241, 0.29),
            slow_network=True,
            files=True,
        ),
        groups=9,
    ),
    "a leader that the store told of nobody took every route away": replace(
        _plan(
            5953,
            18.1,
            Fault(5.23, "crash coordinator", 90, 0.97),
            Fault(6.10, "store hangs", 100, 2.82),
            Fault(8.49, "store emptied", 86),
            files=True,
        ),
        lease=True,
    ),
    "a store that was rolled back took beats back that it had told of": replace(
        _plan(
            5932,
            18.9,
            Fault(9.86, "cut leader from workers", 460, 3.94),
            Fault(11.91, "store fails over", 845, 1.74),
        ),
        coordinators=3,
        workers=5,
        groups=15,
        lease=True,
    ),
    "what went to its stand-by past the deadline was moved on at once": replace(
        _plan(
            7258,
            22.8,
            Fault(5.65, "cut leader from worker", 932, 5.45),
            Fault(10.14, "worker leaves", 706),
        ),
        coordinators=3,
        groups=14,
    ),
    "a stand-by that the store did not know of yet was passed over": replace(
        _plan(
            8049,
            16.98,
            Fault(11.60, "cut leader from store", 493, 5.38),
            Fault(12.25, "crash worker", 306, 0.27),
            Fault(15.24, "vanish leader", 691, 0.43),
            Fault(15.64, "vanish worker", 830, 0.67),
        ),
        groups=18,
        lease=True,
    ),
    "a leader that was told to drain a worker before it had talked to any broke off": replace(
        _plan(
            8666,
            19.8,
            Fault(7.25, "vanish leader", 322, 1.86),
            Fault(9.12, "worker drains", 433, 0.33),
        ),
        lease=True,
    ),
    "who had become the owner since the stored map, and was paused, was passed over": replace(
        _plan(
            9859,
            13.4,
            Fault(6.29, "cut leader from store", 712, 4.25),
            Fault(7.57, "pause worker", 723, 5.83),
            Fault(8.07, "crash worker", 666, 0.22),
            Fault(9.05, "vanish leader", 56, 0.48),
            files=True,
        ),
        groups=8,
        lease=True,
    ),
}
