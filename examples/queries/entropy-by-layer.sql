-- How widely does each layer look? The entropy of its weights, in nats: 0 is one row, ln(rows) is all rows alike.
SELECT layer, round(avg(entropy), 3) AS entropy, round(avg(self_weight), 3) AS on_itself, round(avg(previous_weight), 3) AS on_previous
FROM head_summary
WHERE run = 1 AND step > 0
GROUP BY layer
ORDER BY layer;
