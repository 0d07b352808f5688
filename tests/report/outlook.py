#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What tools/wear makes of a document: health from what devices report, the projection, the page. outlook.py [TEST]..."""
import copy
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
here = os.path.dirname(os.path.abspath(__file__))
JQ = os.path.join(here, "../../tools/wear/wear")
loader = importlib.machinery.SourceFileLoader("page", os.path.join(here, "../../tools/wear/cowctl-wear-html"))
page = importlib.util.module_from_spec(importlib.util.spec_from_loader("page", loader))
loader.exec_module(page)
DAY, TODAY, GIB, MIB = 86400, 20000, 1 << 30, 1 << 20


def jq(doc, expression, **args):
    more = [word for key, value in args.items() for word in ("--argjson", key, json.dumps(value))]
    return json.loads(subprocess.run(["jq", "-c", "-L", JQ, *more, 'include "outlook"; ' + expression], input=json.dumps(doc), text=True, check=True,
                                     stdout=subprocess.PIPE).stdout)


def smart(answer):
    return jq({"disk": {"kind": "disk"}}, "health($asked)", asked={"smart": answer, "smart_error": "none"})


def attribute(number, name, raw, value=100):
    return {"id": number, "name": name, "value": value, "raw": {"value": raw}}


def ata(*table, **more):
    return smart(more | {"ata_smart_attributes": {"table": list(table)}})


class Health(unittest.TestCase):
    def test_ata(self):
        """Names and numbers as smartctl prints them of a CompactFlash card with a Silicon Motion controller."""
        h = ata(attribute(161, "Valid_Spare_Block_Cnt", 52), attribute(164, "Total_Erase_Count", 300000), attribute(165, "Max_Erase_Count", 64),
                attribute(166, "Min_Erase_Count", 2), attribute(167, "Average_Erase_Count", 30), attribute(168, "Max_Erase_Count_of_Spec", 3000),
                attribute(169, "Remaining_Lifetime_Perc", 99), attribute(241, "Host_Writes_32MiB", 183072),
                attribute(245, "TLC_Writes_32MiB", 333896), model_name="TS32GCF220I", smart_status={"passed": True})
        self.assertEqual([h["kind"], h["model"], h["source"], h["passed"]], ["ata", "TS32GCF220I", "smartctl", True])
        self.assertEqual([round(u["high"], 6) for u in h["life_used"]], [0.01])
        self.assertEqual([h["host_written_bytes"], h["flash_written_bytes"]], [183072 * 32 * MIB, 333896 * 32 * MIB])
        self.assertEqual(h["erase_cycles"], {"average": 30, "least": 2, "most": 64, "rated": 3000})
        self.assertEqual([h["spare"], len(h["attributes"])], [{"blocks": 52}, 9])

    def test_ata_without_a_percentage(self):
        h = ata(attribute(167, "Average_Erase_Count", 300), attribute(168, "Max_Erase_Count_of_Spec", 3000))
        self.assertAlmostEqual(h["life_used"][0]["low"], 0.1)

    def test_the_same_numbers_with_other_names_have_another_meaning(self):
        h = ata(attribute(167, "Write_Protect_Mode", 300), attribute(168, "SATA_Phy_Error_Count", 3000), attribute(241, "Unknown_Attribute", 3000))
        self.assertEqual([h["life_used"], h["host_written_bytes"]], [[], None])

    def test_nvme(self):
        h = smart({"smart_status": {"passed": False}, "nvme_smart_health_information_log": {
            "percentage_used": 7, "available_spare": 98, "available_spare_threshold": 10, "data_units_written": 1000, "media_errors": 3}})
        self.assertEqual([h["kind"], h["host_written_bytes"], h["spare"]["percent"], h["media_errors"], h["passed"]], ["nvme", 512e6, 98, 3, False])
        self.assertAlmostEqual(h["life_used"][0]["low"], 0.06)
        self.assertAlmostEqual(h["life_used"][0]["high"], 0.07)

    def test_any_output_of_a_program_called_smartctl(self):
        for answer in (None, [], {}, 3, "x", {"ata_smart_attributes": 3}, {"smart_status": []}, {"ata_smart_attributes": {"table": {}}},
                       {"ata_smart_attributes": {"table": []}}, {"model_name": {}}):
            self.assertEqual([smart(answer)["source"], smart(answer)["unknown_because"]], ["", "none"], answer)
        for answer in ({"ata_smart_attributes": {"table": [1, [], {}, {"id": "x"}, {"id": 1, "name": 2, "value": 3, "raw": []}]}},
                       {"nvme_smart_health_information_log": {"percentage_used": "x"}}, {"nvme_smart_health_information_log": 1}):
            self.assertEqual(smart(answer)["source"], "smartctl", answer)

    def cmd56(self, arg, start, **at):
        data = list(start) + [at.get("rest", 0)] * (512 - len(start))
        for key, value in at.items():
            if key[0] == "b":
                data[int(key[1:])] = value
        return jq({"disk": {"kind": "sd"}}, "health($asked)", asked={"cmd56": [{"arg": 0, "error": "no"}, {"arg": arg, "data": data}]})

    def test_cmd56(self):
        for arg, start, at, used in ((1, b"DS210101", {"b8": 12}, [("all", 0.11, 0.12)]), (1, b"\x70\x58", {"b44": 81}, [("all", 0.18, 0.19)]),
                                     (0x110005fb, b"ME", {"b8": 33, "b9": 4}, [("tlc", 0.32, 0.33), ("slc", 0.03, 0.04)]),
                                     (0x53420001, b"Sw", {"b80": 55}, [("all", 0.44, 0.45)])):
            h = self.cmd56(arg, start, **at)
            self.assertEqual([(u["part"], round(u["low"], 6), round(u["high"], 6)) for u in h["life_used"]], used)
            self.assertEqual(h["source"], "CMD56")
        for arg, start, at in ((1, b"", {"rest": 255}), (1, b"", {}), (0x110005fb, b"DS210101", {"b8": 12}), (1, b"DS", {"b8": 201})):
            self.assertIn("unknown format", self.cmd56(arg, start, **at)["unknown_because"])
        nothing = jq({"disk": {"kind": "sd"}}, "health($asked)", asked={"cmd56": [{"arg": 1, "error": "Input/output error"}]})
        self.assertEqual(nothing["unknown_because"], "the card does not answer CMD56: Input/output error")


def wear(days, per_day, health):
    """So many days, the last one is today; each as per_day says: x GiB written in 1024 visits, 4x absorbed."""
    lines = [{"unix_day": TODAY - days + 1 + i, "written_bytes": per_day(i) * GIB, "absorbed_bytes": 4 * per_day(i) * GIB,
              "absorbed_writes": 4 * per_day(i) * GIB / 65536, "erase_block_visits": per_day(i) * 1024} for i in range(days) if per_day(i)]
    written = sum(d["written_bytes"] for d in lines)
    return {"device_bytes": 32e9, "totals": {"written_bytes": written, "absorbed_bytes": 4 * written, "absorbed_writes": 4 * written / 65536,
                                             "erase_block_visits": written / GIB * 1024, "first_unix_seconds": (TODAY - days + 1) * DAY},
            "ratios": {}, "erase_blocks": {"erase_block_bytes": 4 * MIB, "unit_bytes": 4 * MIB, "hottest": [{"visits": 1000}]},
            "history": {"days": lines}, "health": health}


def project(doc, flash="unknown", now=TODAY * DAY + 43200):
    return jq(doc, "project($flash; $now)", flash=flash, now=now)


def left(cycles, written):
    """Of so many cycles of 32 GB what is left after these bytes."""
    return 1 - written / (cycles * 32e9)


class Projection(unittest.TestCase):
    def near(self, is_, should):
        self.assertLessEqual(abs(is_ - should), 1e-6 * max(1, abs(should)), f"{is_} instead of {should}")

    def test_not_enough(self):
        for days in range(1, 10):
            p = project(wear(days, lambda i: 1, {}))["projection"]
            self.assertEqual([p["enough_data"], p["observed_days"], p["scenarios"] is not None], [days >= 8, days - 1, days >= 8])

    def test_whole_card(self):
        """1 GiB a day, 500 to 5000 cycles of 32 GB, amplified 1 to 4 times: by hand."""
        doc = project(wear(31, lambda i: 1, {}))
        p, f, days = doc["projection"], doc["projection"]["factors"], 32e9 / GIB
        low, high = left(500, 4 * 31 * GIB), left(5000, 31 * GIB)
        self.near(p["scenarios"]["whole_card"]["seconds_low"], 500 * days / 4 * low * DAY)
        self.near(p["scenarios"]["whole_card"]["seconds_high"], 5000 * days * high * DAY)
        self.assertEqual([p["scenarios"]["whole_card"]["basis"], *(f[k]["basis"] for k in ("daily_bytes", "erase_cycles", "device_amplification",
                          "life_left", "sooner_without_cowfs")), doc["ratios"]["device_amplification"]["basis"]],
                         ["bounded", "measured", "assumed", "bounded", "assumed", "model", "bounded"])
        # 4 GiB instead of 1; 65,536 writes of 64 KiB instead of 1024 visits
        self.near(f["sooner_without_cowfs"]["low"], 4)
        self.near(f["sooner_without_cowfs"]["high"], 64)
        # 1000 visits in 30 days at least, 30.5 at most
        self.near(p["scenarios"]["hottest_erase_block"]["seconds_low"], 500 * 30 * low * DAY / 1000)
        self.near(p["scenarios"]["hottest_erase_block"]["seconds_high"], 5000 * 30.5 * high * DAY / 1000)
        p = project(wear(31, lambda i: 1, {}), "slc")["projection"]
        self.near(p["scenarios"]["whole_card"]["seconds_low"], 30000 * days / 4 * left(30000, 4 * 31 * GIB) * DAY)

    def test_used(self):
        """What cowfs wrote is used up, also on a card that reports nothing."""
        doc, written = wear(31, lambda i: 1, {}), 100e12
        doc["totals"] |= {"written_bytes": written, "erase_block_visits": 2 * written / (4 * MIB)}
        p = project(doc)["projection"]
        # 500 cycles, amplified twice: over; 5000 cycles of 32 GB are 160 TB
        self.near(p["factors"]["life_left"]["low"], 0)
        self.near(p["factors"]["life_left"]["high"], 1 - 100 / 160)
        self.near(p["scenarios"]["whole_card"]["seconds_low"], 0)
        self.near(p["scenarios"]["whole_card"]["seconds_high"], 5000 * 32e9 / GIB * (1 - 100 / 160) * DAY)
        doc["totals"]["written_bytes"] = 0
        self.near(project(doc)["projection"]["factors"]["life_left"]["low"], 1)

    def test_measured(self):
        """A figure from the device replaces the assumed one."""
        p = project(wear(31, lambda i: 1, {"disk_bytes": 64e9, "host_written_bytes": 100, "flash_written_bytes": 250, "erase_cycles": {"rated": 3000},
                                           "life_used": [{"low": 0, "high": 0.1}, {"low": 0.4, "high": 0.5}]}))["projection"]
        self.near(p["scenarios"]["whole_card"]["seconds_low"], 3000 * 64e9 / GIB / 2.5 * 0.5 * DAY)
        self.near(p["scenarios"]["whole_card"]["seconds_high"], 3000 * 64e9 / GIB / 2.5 * 0.6 * DAY)
        self.assertEqual([p["factors"][k]["basis"] for k in ("erase_cycles", "device_amplification", "life_left")], ["measured"] * 3)

    def test_spread(self):
        # 1 to 10 GiB; the eleventh day is today
        daily = project(wear(11, lambda i: i + 1, {}))["projection"]["factors"]["daily_bytes"]
        self.near(daily["low"], 5 * GIB)
        self.near(daily["high"], 9 * GIB)
        # one write in a month: the median is zero, and no upper end is given; a lower one is
        p = project(wear(31, lambda i: i == 0, {}))["projection"]
        self.assertTrue(p["enough_data"])
        self.assertIsNone(p["scenarios"]["whole_card"]["seconds_high"])
        self.near(p["factors"]["daily_bytes"]["high"], GIB / 30)
        self.near(p["scenarios"]["whole_card"]["seconds_low"], 500 * 32e9 / (4 * GIB / 30) * left(500, 4 * GIB) * DAY)

    def test_clocks(self):
        """Lines of a clock that was not set, or is ahead, do not stretch the time."""
        doc, low = wear(31, lambda i: 1, {}), left(500, 4 * 31 * GIB)
        doc["history"]["days"] += [{"unix_day": 0, "written_bytes": 99}, {"unix_day": 28000, "written_bytes": 99}]
        p = project(doc)["projection"]
        self.assertEqual([p["observed_days"], p["ignored_days"]], [30, 2])
        self.near(p["factors"]["daily_bytes"]["high"], GIB)
        # nor does a first boot with the date of some package, although the ledger counts from it
        doc["history"]["days"].append({"unix_day": 19000, "written_bytes": 99})
        doc["totals"]["first_unix_seconds"] = 19000 * DAY
        p = project(doc)["projection"]
        self.assertEqual(p["observed_days"], 30)
        self.near(p["factors"]["daily_bytes"]["low"], GIB)
        self.near(p["scenarios"]["hottest_erase_block"]["seconds_low"], 500 * 30 * low * DAY / 1000)
        # attached for longer than the clocks show; a clock that was never set
        doc["totals"] |= {"attached_seconds": 90 * DAY, "first_unix_seconds": 0}
        p = project(doc)["projection"]
        self.near(p["scenarios"]["hottest_erase_block"]["seconds_low"], 500 * 90 * low * DAY / 1000)
        self.near(p["scenarios"]["hottest_erase_block"]["seconds_high"], 5000 * 90 * left(5000, 31 * GIB) * DAY / 1000)
        # a weekend machine has no pause
        doc["history"]["days"] += [{"unix_day": day} for day in range(TODAY - 30 - 50, 19700, -50)]
        self.assertEqual(project(doc)["projection"]["observed_days"], 280)
        # 60 days without a write are none, 61 are
        for gap, days in ((60, 90), (61, 30)):
            doc = wear(31, lambda i: 1, {})
            doc["history"]["days"].append({"unix_day": TODAY - 30 - gap})
            self.assertEqual(project(doc)["projection"]["observed_days"], days)
        # the clock shows 1970: nothing is known
        self.assertFalse(project(doc, now=3600)["projection"]["enough_data"])


class Page(unittest.TestCase):
    def test_fields_of_another_type(self):
        sample = json.loads(subprocess.run([os.path.join(here, "sample.py"), "units=20", "days=9", "commits=3"], check=True, stdout=subprocess.PIPE).stdout)
        for path in ("history", "history.days", "history.commits", "history.days.0", "erase_blocks", "erase_blocks.visits", "erase_blocks.visits.0",
                     "erase_blocks.hottest", "erase_blocks.units", "health", "health.life_used", "health.spare", "health.erase_cycles", "projection",
                     "projection.factors", "projection.scenarios", "projection.scenarios.whole_card", "projection.factors.daily_bytes", "ratios",
                     "truth", "name", "have_table", "generated_unix_seconds", "totals.writable_seconds"):
            *outer, last = [int(k) if k.isdigit() else k for k in path.split(".")]
            for value in (None, "x", -1, 1e308, 1 << 70, [], {}, [[]], True):
                doc = copy.deepcopy(sample)
                page.member(doc, *outer)[last] = value
                with self.subTest(path=path, value=value):
                    text = page.page(copy.deepcopy(doc))
                    self.assertTrue(text.startswith("<!DOCTYPE html>") and text.endswith("</html>\n"))
                    self.assertEqual(json.loads(text.split('id="data">')[1].split("</script>")[0]), doc)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v", *sys.argv[1:]])
