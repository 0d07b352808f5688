/* SPDX-License-Identifier: MIT */
/*
 * cowctl measure --tables: the parser of fio's result, with a result that fio 3.33 printed (shortened by what
 * nothing reads), and tables and page of documents that lack fields or have others of their names.
 */
#include "test.h"
#include "measure/bench_fio.h"
#include "measure/bench_run.h"
#include "measure/bench_show.h"
#include "wire/json.h"

/* 400 requests of 4 KiB, one in five a write */
#define NOTHING "{\"min\": 0, \"max\": 0, \"mean\": 0.0, \"stddev\": 0.0, \"N\": 0}"
static const char sample[] =
	"{\"fio version\": \"fio-3.33\", \"timestamp\": 1795311904, \"jobs\": [{\n"
	"\"jobname\": \"x\", \"groupid\": 0, \"error\": 0, \"elapsed\": 1, \"read\": {\n"
	"  \"io_bytes\": 1282048, \"io_kbytes\": 1252, \"iops\": 28454.545455, \"runtime\": 11,\n"
	"  \"total_ios\": 313, \"slat_ns\": " NOTHING ",\n"
	"  \"clat_ns\": {\"min\": 1192, \"max\": 129752, \"mean\": 3873.757188, \"N\": 313,\n"
	"    \"percentile\": {\"1.000000\": 1256, \"50.000000\": 1416, \"99.000000\": 92672}},\n"
	"  \"lat_ns\": {\"min\": 1222, \"max\": 129782, \"mean\": 3921.72524,\n"
	"    \"stddev\": 14210.753388, \"N\": 313}, \"bw_min\": 0, \"iops_max\": 0},\n"
	"\"write\": {\n"
	"  \"io_bytes\": 356352, \"io_kbytes\": 348, \"iops\": 7909.090909, \"runtime\": 11,\n"
	"  \"total_ios\": 87, \"slat_ns\": " NOTHING ",\n"
	"  \"clat_ns\": {\"min\": 46579, \"max\": 316680, \"mean\": 75776.873563, \"N\": 87,\n"
	"    \"percentile\": {\"1.000000\": 46336, \"50.000000\": 67072, \"99.000000\": 317440}},\n"
	"  \"lat_ns\": {\"min\": 46619, \"max\": 316931, \"mean\": 75848.344828,\n"
	"    \"stddev\": 32935.821406, \"N\": 87}, \"bw_min\": 0, \"iops_max\": 0},\n"
	"\"sync\": {\"total_ios\": 0, \"lat_ns\": " NOTHING "}, \"job_runtime\": 10}]}\n";

TEST(test_sample)
{
	struct fio_result r;

	assert_int_equal(fio_parse(sample, &r), 0);
	assert_int_equal(r.read.requests, 313);
	assert_int_equal(r.write.requests, 87);
	assert_int_equal(r.read.bytes, 313 * 4096);
	assert_int_equal(r.write.bytes, 87 * 4096);
	assert_float_equal(r.read.seconds, 0.011, 1e-9);
	assert_float_equal(r.read.mean_ns, 3921.725240, 1e-6);
	assert_float_equal(r.write.deviation_ns, 32935.821406, 1e-6);
	assert_int_equal(r.read.median_ns, 1416);
	assert_int_equal(r.write.p99_ns, 317440);
	assert_int_equal(r.write.longest_ns, 316931);
}

/* Reads and writes together; so short a time is the sum of the requests. */
TEST(test_figures)
{
	struct json_object *o;
	struct fio_result r;
	double sum = 313 * 3921.725240 + 87 * 75848.344828;

	assert_int_equal(fio_parse(sample, &r), 0);
	o = bench_figures(&r);
	assert_int_equal(json_u64(o, "requests"), 400);
	assert_float_equal(json_number(o, "mean_ns"), sum / 400, 1);
	assert_float_equal(json_number(o, "seconds"), sum / 1e9, 1e-6);
	assert_float_equal(json_number(o, "requests_per_second"), 400 / (sum / 1e9), 1);
	json_object_put(o);
	/* fio's own time, which has the flush at the end */
	r.read.seconds = r.write.seconds = 2;
	o = bench_figures(&r);
	assert_float_equal(json_number(o, "requests_per_second"), 200, 1e-3);
	assert_float_equal(json_number(o, "bytes_per_second"), 200 * 4096, 1);
	json_object_put(o);
	assert_null(bench_figures(&(struct fio_result){ 0 }));
}

TEST(test_warnings_first)
{
	char text[sizeof(sample) + 64];
	struct fio_result r;

	snprintf(text, sizeof(text), "fio: a warning\nnote: {\n%s", sample);
	assert_int_equal(fio_parse(text, &r), 0);
	assert_int_equal(r.read.requests, 313);
}

TEST(test_job_failed)
{
	char text[sizeof(sample) + 64], *error;
	struct fio_result r;

	snprintf(text, sizeof(text), "%s", sample);
	error = strstr(text, "\"error\": 0");
	assert_non_null(error);
	error[strlen("\"error\": ")] = '5';
	assert_int_equal(fio_parse(text, &r), -5);
}

TEST(test_not_fio)
{
	static const char *const bad[] = {
		"",
		"\n",
		"fio: failed",
		"{",
		"{}",
		"[]",
		"null",
		"{\"jobs\":1}",
		"{\"jobs\":[]}",
		"{\"jobs\":[1]}",
		"{\"jobs\":[{}]}",
		"{\"jobs\":[{\"read\":{},\"write\":{}}]}",
		"{\"jobs\":[{\"read\":[],\"write\":1}]}",
		"{\"jobs\":[{\"read\":{\"lat_ns\":1},\"write\":{\"lat_ns\":[]}}]}",
	};
	struct fio_result r;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(fio_parse(bad[i], &r), -EBADMSG);
	/* each prefix of a result that is cut short */
	for (size_t n = 0; n + 2 < strlen(sample); n += 7) {
		char cut[sizeof(sample)];

		memcpy(cut, sample, n);
		cut[n] = '\0';
		assert_int_equal(fio_parse(cut, &r), -EBADMSG);
	}
}

/* The text and the page of a document, which must not crash. The caller frees both. */
static void show(const char *json, const char *former_json, char **ret_text, char **ret_page)
{
	struct json_object *doc = json_tokener_parse(json),
			   *former = former_json ? json_tokener_parse(former_json) : NULL;
	size_t n;
	FILE *f = open_memstream(ret_text, &n);

	bench_text(f, doc, former);
	fclose(f);
	f = open_memstream(ret_page, &n);
	bench_page(f, doc, former);
	fclose(f);
	json_object_put(doc);
	json_object_put(former);
}

#define FIGURE(rate)                                                                               \
	"{\"requests_per_second\":" rate ",\"bytes_per_second\":2.5e7,\"spread_percent\":1}"

TEST(test_tables)
{
	static const char doc[] =
		"{\"target\":\"/dev/<b>\",\"kind\":\"device\",\"raid\":\"raid5 of 4\","
		"\"linear\":[{\"block_bytes\":4096,\"read\":" FIGURE(
			"100") "},{\"block_bytes\":8192,"
			       "\"read\":" FIGURE("90") ",\"write\":" FIGURE(
				       "80") "}],"
					     "\"mix\":[{\"write_percent\":20,\"both\":" FIGURE(
						     "51") ",\"to_15k_disk\":0.25,"
							   "\"to_5400_disk\":3}],\"not_measured\":[{\"table\":\"seek\",\"why\":\"<i>\"}]}";
	char *text, *page;

	show(doc, doc, &text, &page);
	assert_non_null(strstr(text, "RAID level raid5 of 4"));
	assert_non_null(strstr(text, "25.0  25.0"));
	assert_non_null(strstr(text, "-  25.0"));
	assert_non_null(strstr(text, "4.00x worse"));
	assert_non_null(strstr(text, "3.00x better"));
	assert_non_null(strstr(text, "not measured: seek: <i>"));
	assert_non_null(strstr(page, "/dev/&lt;b&gt;"));
	assert_null(strstr(page, "<i>"));
	assert_null(strstr(page, "<b>"));
	assert_non_null(strstr(page, "<svg"));
	free(text);
	free(page);
}

TEST(test_odd_documents)
{
	static const char *const odd[] = {
		"{}",
		"{\"linear\":1,\"seek\":{},\"random\":[],\"mix\":[1],\"iozone\":[],\"fragments\":3}",
		("{\"linear\":[null,[],{\"read\":1}],\"seek\":[{\"read\":[]}],\"random\":[{\"write\":{}}],"
		 "\"mix\":[{\"both\":{}}],\"iozone\":{\"write\":3},\"fragments\":[null,{\"rows\":[null]}],"
		 "\"not_measured\":[1,{}]}"),
		("{\"linear\":[{\"block_bytes\":18446744073709551615,\"read\":{\"bytes_per_second\":1e308}},"
		 "{\"block_bytes\":0,\"read\":{\"bytes_per_second\":-1e308}}],\"seek\":[{\"block_bytes\":1,"
		 "\"seek_ns\":1e-300},{\"block_bytes\":3,\"seek_ns\":1e300}]}"),
		("{\"date_unix_seconds\":18446744073709551615,\"mix\":[{\"write_percent\":1e30,\"both\":{"
		 "\"requests_per_second\":1e300},\"to_15k_disk\":-1},{\"both\":{}}]}"),
	};
	char many[16384] = "{\"linear\":[", *text, *page;

	for (size_t i = 0; i < ARRAY_SIZE(odd); i++)
		for (size_t k = 0; k <= ARRAY_SIZE(odd); k++) {
			show(odd[i], k ? odd[k - 1] : NULL, &text, &page);
			assert_non_null(strstr(page, "</html>"));
			free(text);
			free(page);
		}
	for (int i = 0; i < 200; i++)
		strcat(many, "{\"block_bytes\":4096,\"read\":{\"bytes_per_second\":1e6}},");
	strcat(many, "{}],\"seek\":[");
	for (int i = 0; i < 100; i++)
		strcat(many, "{\"block_bytes\":4096,\"seek_ns\":7},");
	strcat(many, "{}]}");
	show(many, many, &text, &page);
	free(text);
	free(page);
}
