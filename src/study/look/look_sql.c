/* look_sql.c: the questions that look asks a trace. Each finds its rows by a key. `main.` because a TEMP table of the person's
 * own, made in the SQL view on the same connection, may have the same name. */
#include "study/look/look_parts.h"

const char *const look_sql[ASK_COUNT] = {
    [ASK_VERSION] = "PRAGMA main.data_version",
    [ASK_LAST_RUN] = "SELECT max(run) FROM main.run",
    [ASK_LAST_STEP] = "SELECT max(step) FROM main.step WHERE run = ?1",
    [ASK_RUN] =
        "SELECT model, fault, engine, created_at, finished_at, prompt, n_layer, n_head, n_embd, head_dim, n_ctx,"
        " n_vocab, fault_from_step, model_sha256 FROM main.run WHERE run = ?1",
    /* Where the first batch ends, and where the prompt ends. */
    [ASK_PROMPT] = "SELECT (SELECT step FROM main.step WHERE run = ?1 AND mode IS NOT 'prefill' ORDER BY step LIMIT 1),"
                   " (SELECT step FROM main.step WHERE run = ?1 AND source IS NOT 'prompt' ORDER BY step LIMIT 1)",
    [ASK_STEPS] = "SELECT s.step, s.mode, s.source, s.token, t.text, s.cache_length_before, s.position,"
                  " s.cache_length_after, s.logprob, s.seconds"
                  " FROM main.step AS s LEFT JOIN main.token AS t ON t.token = s.token"
                  " WHERE s.run = ?1 AND s.step BETWEEN ?2 AND ?3",
    [ASK_HEAD] = "SELECT q, out, scores, weights FROM main.head_step"
                 " WHERE run = ?1 AND step = ?2 AND layer = ?3 AND head = ?4",
    [ASK_ROW] = "SELECT k, v FROM main.kv_row WHERE run = ?1 AND step = ?2 AND layer = ?3 AND row = ?4",
    [ASK_VECTORS] = "SELECT wte, wpe, x, logits FROM main.step_vector WHERE run = ?1 AND step = ?2",
    [ASK_LAYER] = "SELECT x_in, attn_out, x_mid, mlp_out, x_out FROM main.layer_step"
                  " WHERE run = ?1 AND step = ?2 AND layer = ?3",
    [ASK_TOP] = "SELECT p.token, coalesce(p.token_text, t.text), p.logit, p.probability"
                " FROM main.top_token AS p LEFT JOIN main.token AS t ON t.token = p.token"
                " WHERE p.run = ?1 AND p.step = ?2 ORDER BY p.rank",
    /* As the view head_summary reads and reckons them; that one may have been made to read an attached trace. */
    [ASK_STORED_SUMMARY] = "SELECT entropy, f32_of_bits(max_weight), f32_of_bits(self_weight),"
                           " f32_of_bits(first_weight), f32_of_bits(previous_weight), CASE typeof(weight_sum)"
                           " WHEN 'integer' THEN 1 + weight_sum / 9007199254740992.0 ELSE weight_sum END, max_row"
                           " FROM main.head_stat WHERE run = ?1 AND step = ?2 AND layer = ?3 AND head = ?4",
    [ASK_SUMMARY] = "SELECT f32_entropy(h.weights), f32_max(h.weights),"
                    " f32(h.weights, coalesce(s.cache_length_before, f32_count(h.weights) - 1)), f32(h.weights, 0),"
                    " f32(h.weights, coalesce(s.cache_length_before, f32_count(h.weights) - 1) - 1),"
                    " f32_sum(h.weights), f32_argmax(h.weights)"
                    " FROM main.head_step AS h LEFT JOIN main.step AS s ON s.run = h.run AND s.step = h.step"
                    " WHERE h.run = ?1 AND h.step = ?2 AND h.layer = ?3 AND h.head = ?4 AND h.weights IS NOT NULL",
    [ASK_WRITERS] = "SELECT row, step FROM main.kv_row WHERE run = ?1 AND layer = ?2 ORDER BY row, step LIMIT ?3",
    [ASK_WRITER] = "SELECT max(step) FROM main.kv_row WHERE run = ?1 AND layer = ?2 AND row = ?3 AND step <= ?4",
    [ASK_LENGTHS] = "SELECT cache_length_before, step FROM main.step WHERE run = ?1 AND cache_length_before >= 0"
                    " ORDER BY cache_length_before, step LIMIT ?2",
    /* The index finds the length; +step keeps SQLite from walking through the run's steps instead. */
    [ASK_LENGTH] = "SELECT max(+step) FROM main.step WHERE run = ?1 AND cache_length_before = ?2 AND +step <= ?3",
    [ASK_NEXT_TEXT] = "SELECT s.step, t.text FROM main.step AS s CROSS JOIN main.token AS t ON t.token = s.token"
                      " WHERE s.run = ?1 AND s.step > ?2 ORDER BY s.step",
    [ASK_EARLIER_TEXT] = "SELECT s.step, t.text FROM main.step AS s CROSS JOIN main.token AS t ON t.token = s.token"
                         " WHERE s.run = ?1 AND s.step < ?2 ORDER BY s.step DESC",
    [ASK_DIFFERENCE] =
        "SELECT a.step FROM main.step AS a CROSS JOIN main.step AS b ON b.run = ?2 AND b.step = a.step"
        " LEFT JOIN main.top_token AS p ON p.run = ?1 AND p.step = a.step AND p.rank = 1"
        " LEFT JOIN main.top_token AS q ON q.run = ?2 AND q.step = a.step AND q.rank = 1"
        " WHERE a.run = ?1 AND a.step >= ?3"
        " AND (a.token <> b.token OR a.position IS NOT b.position OR p.token <> q.token) ORDER BY a.step LIMIT 1",
    [ASK_LAYER_LENGTHS] = "SELECT max(cache_length) FILTER (WHERE phase = 'project'),"
                          " max(cache_length) FILTER (WHERE phase = 'append')"
                          " FROM main.event WHERE run = ?1 AND step = ?2 AND layer = ?3",
    [ASK_HEADS_LOGGED] = "SELECT 1 FROM main.head_step WHERE run = ?1 AND step = ?2 AND layer = ?3 LIMIT 1",
    [ASK_TOKEN] = "SELECT text FROM main.token WHERE token = ?1",
};
