-- Health of a ShardedModel for Argo CD: resource.customizations.health.shardwright.io_ShardedModel in argocd-cm.
local status = obj.status or {}
if status.observedGeneration ~= obj.metadata.generation then
  return {status = "Progressing", message = "the operator has not looked at this generation yet"}
end
local found = {}
for _, condition in ipairs(status.conditions or {}) do
  found[condition.type] = condition
end
local ready = found.Ready or {}
local function is(name)
  return found[name] ~= nil and found[name].status == "True"
end
local health = "Progressing"
if is("Ready") and not is("Reconciling") then
  health = "Healthy"
elseif is("Stalled") or is("Degraded") then
  health = "Degraded"
elseif ready.reason == "Paused" then
  health = "Suspended"
end
return {status = health, message = ready.message}
