#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""cowctl measure --tables: what fio prints (a result of fio 3.33, shortened by what nothing reads), and tables and page of documents that
lack fields or have others of their names."""
import importlib.util
import json
import os
import sys
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location("tables", f"{HERE}/../../tools/measure/measure/tables.py")
tables = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tables)


def side(io_bytes, ios, mean, deviation, longest, median, p99):
    return {"io_bytes": io_bytes, "runtime": 11, "total_ios": ios, "slat_ns": {"mean": 0.0},
            "clat_ns": {"mean": mean, "percentile": {"1.000000": 1256, "50.000000": median, "99.000000": p99}},
            "lat_ns": {"max": longest, "mean": mean, "stddev": deviation, "N": ios}}


# 400 requests of 4 KiB, one in five a write
JOB = {"jobname": "x", "error": 0, "read": side(1282048, 313, 3921.72524, 14210.753388, 129782, 1416, 92672),
       "write": side(356352, 87, 75848.344828, 32935.821406, 316931, 67072, 317440)}
SAMPLE = json.dumps({"fio version": "fio-3.33", "jobs": [JOB]})
TIMES = [[512 << i, 1000000 + i] for i in range(16)]
CARDS = [{"id": f"c{i}", "title": "<c>", "source": "s", "writes": i != 1, "sync_ns": 5, "read_ns": TIMES, "write_ns": TIMES, "random_read_ns": TIMES,
          "random_write_ns": TIMES} for i in range(4)]


def rate(v):
    return {"requests_per_second": v, "bytes_per_second": 2.5e7, "spread_percent": 1}


class Fio(unittest.TestCase):
    def test_sample(self):
        read, write, error = tables.parse_fio("fio: a warning\nnote: {\n" + SAMPLE)
        self.assertEqual((read["requests"], write["requests"], read["bytes"], error), (313, 87, 313 * 4096, 0))
        self.assertEqual((read["median"], write["p99"], write["longest"], read["seconds"]), (1416, 317440, 316931, 0.011))

    def test_figures(self):
        """Reads and writes together; so short a time is the sum of the requests."""
        read, write, _ = tables.parse_fio(SAMPLE)
        total = 313 * 3921.72524 + 87 * 75848.344828
        o = tables.figures(read, write)
        self.assertEqual(o["requests"], 400)
        self.assertAlmostEqual(o["mean_ns"], total / 400, delta=1)
        self.assertAlmostEqual(o["seconds"], total / 1e9, delta=1e-6)
        # fio's own time, which has the flush at the end
        read["seconds"] = write["seconds"] = 2
        o = tables.figures(read, write)
        self.assertEqual((o["requests_per_second"], o["bytes_per_second"]), (200, 200 * 4096))
        nothing = {**read, "requests": 0}
        self.assertIsNone(tables.figures(nothing, nothing))

    def test_not_fio(self):
        for text in ("", "\n", "fio: failed", "{", "{}", "[]", "null", '{"jobs":1}', '{"jobs":[]}', '{"jobs":[1]}', '{"jobs":[{}]}',
                     '{"jobs":[{"read":{},"write":{}}]}', '{"jobs":[{"read":[],"write":1}]}', '{"jobs":[{"read":{"lat_ns":1},"write":{"lat_ns":[]}}]}',
                     *(SAMPLE[:n] for n in range(0, len(SAMPLE) - 2, 7))):
            with self.assertRaises(ValueError, msg=text):
                tables.parse_fio(text)
        self.assertEqual(tables.parse_fio(SAMPLE.replace('"error": 0', '"error": 5'))[2], 5)


class Shown(unittest.TestCase):
    def both(self, doc, former):
        page = tables.page_of(doc, former, CARDS)
        self.assertTrue(page.endswith("</html>\n"))
        self.assertNotRegex(page, r"<(link|img|script|iframe|object)|(src|href)=")
        return tables.text_of(doc, former, CARDS), page

    def test_tables(self):
        doc = {"target": "/dev/<b>", "kind": "device", "raid": "raid5 of 4",
               "linear": [{"block_bytes": 4096, "read": rate(100)}, {"block_bytes": 8192, "read": rate(90), "write": rate(80)}],
               "mix": [{"write_percent": 20, "both": rate(51), "to_15k_disk": 0.25, "to_5400_disk": 3}],
               "fragments": [{"state": "blank", "extents": 1, "rows": [{"block_bytes": 512, "write": rate(2)}]}],
               "not_measured": [{"table": "seek", "why": "<i>"}]}
        text, page = self.both(doc, doc)
        for line in ("RAID level raid5 of 4", "4.00x worse", "3.00x better", "not measured: seek: <i>", "beside it c0"):
            self.assertIn(line, text)
        self.assertRegex(text, r"  Read +25\.0 +25\.0\n")
        self.assertRegex(text, r"  Write +- +25\.0\n")
        # 4096 bytes in 1.000003 ms
        self.assertRegex(text, r"    c0 +4\.10 +8\.19\n")
        self.assertRegex(text, r"  blank +1 +120 +-\n")
        self.assertIn("/dev/&lt;b&gt;", page)
        self.assertIn("<svg", page)
        for tag in ("<i>", "<b>", "<c>"):
            self.assertNotIn(tag, page)

    def test_odd_documents(self):
        big = 18446744073709551615
        odd = [{}, {"linear": 1, "seek": {}, "random": [], "mix": [1], "iozone": [], "fragments": 3},
               {"linear": [None, [], {"read": 1}], "seek": [{"read": []}], "random": [{"write": {}}], "mix": [{"both": {}}], "iozone": {"write": 3},
                "fragments": [None, {"rows": [None]}], "not_measured": [1, {}]},
               {"linear": [{"block_bytes": big, "read": {"bytes_per_second": 1e308}}, {"block_bytes": 0, "read": {"bytes_per_second": -1e308}}],
                "seek": [{"block_bytes": 1, "seek_ns": 1e-300}, {"block_bytes": 3, "seek_ns": 1e299}]},
               {"date_unix_seconds": big, "mix": [{"write_percent": 1e30, "both": {"requests_per_second": 1e300}, "to_15k_disk": -1}, {"both": {}}]},
               {"target": "\ud800\x00", "test_bytes": -1, "seed": [], "linear": [{"block_bytes": -4096, "read": rate(1)}] * 200}]
        for doc in odd:
            for former in [None, *odd]:
                self.both(doc, former)


if __name__ == "__main__":
    unittest.main()
