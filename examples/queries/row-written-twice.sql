-- Was a cache row written more than once, or left out? In a correct run every layer has rows 0 .. steps - 1, once each.
SELECT run, layer, count(*) AS appends, count(DISTINCT row) AS rows, max(row) + 1 AS length,
       CASE WHEN count(*) = count(DISTINCT row) AND max(row) + 1 = count(*) THEN 'each row once' ELSE 'not each row once' END AS verdict
FROM kv_row
GROUP BY run, layer;
